//! How the crate's types stand in columns.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use crate::checkpoint::{BlobState, CheckpointState};
use crate::clock::Timestamp;
use crate::hash::{BlobHash, Digest};
use crate::id::{OperationId, Seq, SessionName, WorkspaceId};
use crate::manifest::Trigger;
use crate::operation::OperationKind;

type ToSqlResult<'a> = rusqlite::Result<ToSqlOutput<'a>>;

fn wrong(what: &'static str) -> FromSqlError {
    FromSqlError::Other(what.into())
}

/// A length or a count. SQLite's integers are signed; nothing that is counted here comes near 2^63.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Amount(pub(super) u64);

impl ToSql for Amount {
    fn to_sql(&self) -> ToSqlResult<'_> {
        Ok(i64::try_from(self.0).unwrap_or(i64::MAX).into())
    }
}

impl FromSql for Amount {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        u64::try_from(value.as_i64()?).map(Self).map_err(|_| wrong("a length below zero"))
    }
}

impl ToSql for BlobHash {
    fn to_sql(&self) -> ToSqlResult<'_> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(self.as_bytes())))
    }
}

impl FromSql for BlobHash {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        <[u8; 32]>::column_result(value).map(Self::from_bytes)
    }
}

macro_rules! as_bytes {
    ($($name:ident),*) => {$(
        impl ToSql for $name {
            fn to_sql(&self) -> ToSqlResult<'_> {
                Ok(self.to_bytes().to_vec().into())
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                <[u8; 16]>::column_result(value).map(Self::from_bytes)
            }
        }
    )*};
}

as_bytes!(Digest, OperationId, WorkspaceId);

impl ToSql for Timestamp {
    fn to_sql(&self) -> ToSqlResult<'_> {
        Ok(self.as_ns().into())
    }
}

impl FromSql for Timestamp {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(Self::from_ns)
    }
}

impl ToSql for Seq {
    fn to_sql(&self) -> ToSqlResult<'_> {
        Ok(i64::try_from(self.get()).unwrap_or(i64::MAX).into())
    }
}

impl FromSql for Seq {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let number = u64::try_from(value.as_i64()?).ok();
        number.and_then(Self::new).ok_or_else(|| wrong("a number that is none of a checkpoint"))
    }
}

impl FromSql for SessionName {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::new(value.as_str()?).map_err(|error| FromSqlError::Other(Box::new(error)))
    }
}

impl ToSql for SessionName {
    fn to_sql(&self) -> ToSqlResult<'_> {
        Ok(self.as_str().into())
    }
}

impl FromSql for Trigger {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::new(value.as_str()?).ok_or_else(|| wrong("a trigger that is none"))
    }
}

impl ToSql for Trigger {
    fn to_sql(&self) -> ToSqlResult<'_> {
        Ok(self.as_str().into())
    }
}

impl FromSql for OperationKind {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::from_word(value.as_str()?).ok_or_else(|| wrong("an operation of no known kind"))
    }
}

impl ToSql for OperationKind {
    fn to_sql(&self) -> ToSqlResult<'_> {
        Ok(self.as_str().into())
    }
}

impl FromSql for CheckpointState {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value.as_str()? {
            "live" => Ok(Self::Live),
            "pruning" => Ok(Self::Pruning),
            _ => Err(wrong("a state that is none of a checkpoint")),
        }
    }
}

impl ToSql for BlobState {
    fn to_sql(&self) -> ToSqlResult<'_> {
        let code: i64 = match self {
            Self::Ok => 0,
            Self::Missing => 1,
            Self::Damaged => 2,
        };
        Ok(code.into())
    }
}

impl FromSql for BlobState {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value.as_i64()? {
            0 => Ok(Self::Ok),
            1 => Ok(Self::Missing),
            2 => Ok(Self::Damaged),
            _ => Err(wrong("a state that is none of a blob")),
        }
    }
}
