//! Questions in SQL: one statement, on a connection of its own that can do nothing but read.
//!
//! Several fences stand one behind the other, so that none has to be perfect: the file is opened for
//! reading; `query_only` and `DEFENSIVE` are set, and the schema is not trusted; what a statement would
//! do is asked for while it is compiled, and all but reading refused; its size and that of its values
//! are bounded, and its time is.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, Statement};

use super::connection::{self, failure};
use super::{Access, Index};
use crate::error::{Error, IoContext, QueryError, Result};
use crate::limits;
use crate::monitor::{Monitor, Phase};

/// A value in an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// An integer.
    Integer(i64),
    /// A number with a fraction; never NaN.
    Real(f64),
    /// Text. What is not UTF-8 in it has been replaced, as in a path; `path_bytes` has the bytes.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// How far a query may go.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QueryOptions {
    /// How long it may take; 30 seconds by default, `None` for ever. It is looked at while the query runs
    /// and before each row: who does not take a row is not interrupted.
    pub time_limit: Option<Duration>,
    /// How many rows are wanted at most; `None`, the default, for all.
    pub row_limit: Option<u64>,
}

impl Default for QueryOptions {
    fn default() -> Self {
        Self { time_limit: Some(limits::QUERY_TIME_DEFAULT), row_limit: None }
    }
}

/// A row of an answer, as it comes.
#[derive(Debug)]
#[non_exhaustive]
pub struct QueryRow<'a> {
    /// The names of the columns, the same for each row.
    pub columns: &'a [String],
    /// A value for each.
    pub values: Vec<Value>,
}

/// How an answer ended that was received row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryOutcome {
    /// The names of the columns, also where there was no row.
    pub columns: Vec<String>,
    /// How many rows were received.
    pub rows: u64,
    /// Whether there are more than [`QueryOptions::row_limit`].
    pub has_more: bool,
}

/// Functions of SQLite or its shell that do something else than compute a value. Not all are there in
/// every build.
const REFUSED_FUNCTIONS: [&str; 5] =
    ["edit", "fts3_tokenizer", "load_extension", "readfile", "writefile"];

/// What a statement asked for and must not do.
type Refused = Arc<Mutex<Option<String>>>;

/// A connection for questions. It goes on answering, from the state of the index that it was opened
/// on, when another process builds the index anew.
pub(crate) struct Reader {
    connection: Connection,
    path: PathBuf,
    refused: Refused,
}

impl Index {
    /// Opens a connection for questions. All files are open when it returns, so the store's lock need
    /// not be held while it is used.
    ///
    /// # Errors
    /// [`QueryError::NoIndex`], [`Error::IndexDamaged`], [`Error::Busy`].
    pub(crate) fn open_reader(&self) -> Result<Reader> {
        let path = self.path.clone();
        let refused = Refused::default();
        match fenced(&path, &refused) {
            Ok(connection) => Ok(Reader { connection, path, refused }),
            Err(error) if connection::needs_writing(&error) => {
                let reason = error.to_string();
                Err(QueryError::NoIndex { path, reason }.into())
            }
            Err(error) => Err(failure(&path, "be opened for a query", error)),
        }
    }
}

/// A connection with all fences but that of time.
fn fenced(path: &Path, refused: &Refused) -> rusqlite::Result<Connection> {
    let connection = connection::open_file(path, Access::Read)?;
    // Sorting may take more room than a writer's few rows: what is too much for memory goes to a file.
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = FILE")?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, limits::QUERY_BYTES_MAX),
        (Limit::SQLITE_LIMIT_VDBE_OP, limits::QUERY_INSTRUCTIONS_MAX),
        (Limit::SQLITE_LIMIT_LENGTH, limits::QUERY_VALUE_BYTES_MAX),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, limits::QUERY_PATTERN_BYTES_MAX),
        (Limit::SQLITE_LIMIT_COLUMN, limits::QUERY_COLUMNS_MAX),
    ] {
        connection.set_limit(limit, i32::try_from(value).unwrap_or(i32::MAX))?;
    }
    // The first statement that looks at the file: it opens -wal and -shm too.
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    let refused = Arc::clone(refused);
    connection.authorizer(Some(move |context: AuthContext<'_>| {
        let Some(what) = beyond_reading(&context.action) else { return Authorization::Allow };
        let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
        // The first is what was written; what follows from it says less.
        refused.get_or_insert(what);
        Authorization::Deny
    }))?;
    Ok(connection)
}

/// What an action does beyond reading, if it does.
fn beyond_reading(action: &AuthAction<'_>) -> Option<String> {
    let what = match action {
        AuthAction::Select | AuthAction::Recursive | AuthAction::Read { .. } => return None,
        AuthAction::Function { function_name } => {
            let is_refused =
                REFUSED_FUNCTIONS.iter().any(|name| name.eq_ignore_ascii_case(function_name));
            if !is_refused {
                return None;
            }
            format!("the function {function_name}")
        }
        AuthAction::Pragma { pragma_name, .. } => format!("PRAGMA {pragma_name}"),
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => "another database".to_owned(),
        AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => "a transaction".to_owned(),
        AuthAction::Insert { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Delete { table_name }
            if !table_name.starts_with("sqlite_") =>
        {
            format!("a change of `{table_name}`")
        }
        _ => "a change of the schema".to_owned(),
    };
    Some(what)
}

impl Reader {
    /// Gives each row of the answer to `each`, until there are no more or it breaks off. One unchanging
    /// state of the index is read, and nothing is kept of it when this returns.
    ///
    /// # Errors
    /// [`Error::Query`], [`Error::Cancelled`], [`Error::IndexDamaged`], [`Error::Busy`].
    pub(crate) fn ask(
        &self,
        sql: &str,
        options: &QueryOptions,
        each: &mut dyn FnMut(QueryRow<'_>) -> ControlFlow<()>,
        monitor: &dyn Monitor,
    ) -> Result<QueryOutcome> {
        monitor.phase(Phase::Query, None);
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let stop = Arc::new(AtomicBool::new(false));
        let deadline = options.time_limit.and_then(|limit| Instant::now().checked_add(limit));
        let is_told_to_stop = Arc::clone(&stop);
        self.connection
            .progress_handler(
                limits::QUERY_STEP_INSTRUCTIONS.into(),
                Some(move || {
                    is_told_to_stop.load(Ordering::Relaxed)
                        || deadline.is_some_and(|deadline| Instant::now() >= deadline)
                }),
            )
            .map_err(|error| failure(&self.path, "be asked", error))?;
        // SQLite keeps the function above, so it cannot hold a monitor that is only borrowed: a thread
        // that ends with the query asks for it.
        thread::scope(|scope| {
            let (ended, wait) = mpsc::channel::<()>();
            thread::Builder::new()
                .name("turnpoint-query".to_owned())
                .spawn_scoped(scope, move || {
                    while wait.recv_timeout(limits::QUERY_CANCEL_POLL)
                        == Err(RecvTimeoutError::Timeout)
                    {
                        if monitor.is_cancelled() {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                })
                .at("start a thread for", "a query")?;
            let result = self.rows(sql, options, deadline, each, monitor);
            drop(ended);
            result.map_err(|error| match error {
                Failed::Sqlite(error) => self.meaning(error, options, monitor),
                Failed::Query(error) => error.into(),
                Failed::Cancelled => Error::Cancelled,
            })
        })
    }

    fn rows(
        &self,
        sql: &str,
        options: &QueryOptions,
        deadline: Option<Instant>,
        each: &mut dyn FnMut(QueryRow<'_>) -> ControlFlow<()>,
        monitor: &dyn Monitor,
    ) -> Result<QueryOutcome, Failed> {
        let mut statement = self.connection.prepare(sql)?;
        require_question(&statement)?;
        let columns: Vec<String> =
            statement.column_names().into_iter().map(str::to_owned).collect();
        let mut outcome = QueryOutcome { columns, rows: 0, has_more: false };
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            if monitor.is_cancelled() {
                return Err(Failed::Cancelled);
            }
            // SQLite asks once in so many instructions: whoever takes rows slowly is not asked in between.
            if let (Some(deadline), Some(limit)) = (deadline, options.time_limit)
                && Instant::now() >= deadline
            {
                return Err(QueryError::TimedOut { limit }.into());
            }
            if options.row_limit.is_some_and(|limit| outcome.rows >= limit) {
                outcome.has_more = true;
                break;
            }
            let values = (0..outcome.columns.len())
                .map(|column| row.get_ref(column).map(value))
                .collect::<rusqlite::Result<Vec<Value>>>()?;
            outcome.rows += 1;
            if each(QueryRow { columns: &outcome.columns, values }).is_break() {
                break;
            }
        }
        Ok(outcome)
    }

    /// What an error means for whoever wrote the query.
    fn meaning(
        &self,
        error: rusqlite::Error,
        options: &QueryOptions,
        monitor: &dyn Monitor,
    ) -> Error {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(what) = refused {
            return QueryError::Refused { what }.into();
        }
        let invalid = |reason: String| QueryError::Invalid { reason, offset: None }.into();
        match error {
            rusqlite::Error::MultipleStatement => {
                return invalid("there is more than one statement".to_owned());
            }
            rusqlite::Error::NulError(_) => return invalid("there is a NUL character".to_owned()),
            rusqlite::Error::SqlInputError { ref msg, ref sql, offset, .. } => {
                let before = usize::try_from(offset).ok().and_then(|offset| sql.get(..offset));
                let offset = before.map(|before| before.chars().count());
                return QueryError::Invalid { reason: msg.clone(), offset }.into();
            }
            _ => {}
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => {
                match options.time_limit.filter(|_| !monitor.is_cancelled()) {
                    Some(limit) => QueryError::TimedOut { limit }.into(),
                    None => Error::Cancelled,
                }
            }
            Some(ErrorCode::Unknown | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
                invalid(error.to_string())
            }
            // So SQLite says that a statement has become too long for the limit.
            Some(ErrorCode::OutOfMemory) => {
                invalid("it is too large, or there is too little memory for it".to_owned())
            }
            Some(ErrorCode::ReadOnly) => QueryError::Refused { what: "writing".to_owned() }.into(),
            _ => failure(&self.path, "answer the query", error),
        }
    }
}

/// Why there is no answer, before it is known what that means.
enum Failed {
    Sqlite(rusqlite::Error),
    Query(QueryError),
    Cancelled,
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<QueryError> for Failed {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

/// That a statement that was compiled reads, and gives rows for it.
fn require_question(statement: &Statement<'_>) -> Result<(), QueryError> {
    let invalid = |reason: &str| QueryError::Invalid { reason: reason.to_owned(), offset: None };
    if statement.column_count() == 0 {
        // There is no statement where there is only space and comments.
        return Err(match statement.expanded_sql() {
            None => invalid("it is empty"),
            Some(_) => QueryError::Refused { what: "a statement without rows".to_owned() },
        });
    }
    if !statement.readonly() {
        return Err(QueryError::Refused { what: "writing".to_owned() });
    }
    if statement.parameter_count() > 0 {
        return Err(invalid("there is a parameter: write its value in its place"));
    }
    Ok(())
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(integer) => Value::Integer(integer),
        ValueRef::Real(real) => Value::Real(real),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(blob) => Value::Blob(blob.to_vec()),
    }
}

impl Value {
    /// How many bytes it takes in memory, about.
    pub fn len_in_memory(&self) -> usize {
        let beside = match self {
            Self::Text(text) => text.len(),
            Self::Blob(blob) => blob.len(),
            Self::Null | Self::Integer(_) | Self::Real(_) => 0,
        };
        size_of::<Self>() + beside
    }
}
