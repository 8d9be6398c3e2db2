//! `turnpoint config`.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value as Json, json};
use turnpoint::path::printable;
use turnpoint::settings::{
    Configuration, Given, InForce, InWorkspace, Setting, SettingChange, SettingsFile, Value,
};
use turnpoint::{Place, Position};

use crate::cli::arguments::{ConfigArguments, ConfigCommand};
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::json::PathDocument;
use crate::cli::printer;
use crate::cli::settings::{UserFile, user_file, variable};
use crate::cli::table::{Align, Table};

#[derive(Serialize)]
struct ListDocument {
    settings: Vec<SettingDocument>,
}

#[derive(Serialize)]
struct SettingDocument {
    name: &'static str,
    about: &'static str,
    expected: String,
    in_workspace: Option<&'static str>,
    value: Json,
    default: Json,
    origins: Vec<OriginDocument>,
}

#[derive(Serialize)]
struct OriginDocument {
    layer: &'static str,
    #[serde(flatten)]
    file: Option<PathDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    variable: Option<String>,
    value: Json,
}

#[derive(Serialize)]
struct ChangeDocument {
    name: &'static str,
    layer: &'static str,
    #[serde(flatten)]
    file: PathDocument,
    before: Json,
    after: Json,
    value: Json,
}

/// Shows settings, and changes them.
pub(crate) fn run(arguments: &ConfigArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    match &arguments.command {
        ConfigCommand::Set { local, name, value } => {
            return change(&root, *local, name, Some(value), context);
        }
        ConfigCommand::Unset { local, name } => {
            return change(&root, *local, name, None, context);
        }
        ConfigCommand::List { .. } | ConfigCommand::Get { .. } => {}
    }
    let in_force = context.configuration_as_understood(&root).in_force();
    match &arguments.command {
        ConfigCommand::List { name, long, origin } => {
            let in_force = of_section(in_force, name.as_deref())?;
            if *long && !context.is_json() {
                explain(&in_force, context)?;
            } else {
                list(&in_force, *origin, context)?;
            }
        }
        ConfigCommand::Get { name } => get(&in_force, name, context)?,
        ConfigCommand::Set { .. } | ConfigCommand::Unset { .. } => {}
    }
    Ok(Exit::Done)
}

fn change(
    root: &Path,
    is_local: bool,
    name: &str,
    value: Option<&str>,
    context: &mut Context,
) -> Outcome<Exit> {
    let setting = Setting::named(name).ok_or_else(|| unknown(name))?;
    let is_made = value.is_some() && !is_local;
    let user_file = user_file(if is_made { UserFile::Made } else { UserFile::Changed })?;
    let file = match user_file.as_deref() {
        _ if is_local => SettingsFile::Workspace(root),
        Some(path) => SettingsFile::User(path),
        None => {
            let message = "there is no settings file of the user";
            return Err(Failure::own(Exit::Usage, "no-user-file", message)
                .hint("set TURNPOINT_CONFIG to the file that is to be changed, or HOME"));
        }
    };
    let configuration = context.settings.configuration.clone();
    let change = context.run(|_, monitor| configuration.change(file, setting, value, monitor))?;
    let shown = printable(change.path.as_os_str().as_encoded_bytes());
    if value.is_none() && !change.is_written {
        let message = format!("`{name}` is not in {shown}");
        return Err(Failure::own(Exit::Usage, "setting-not-found", message)
            .hint("`turnpoint config list --origin` shows where each value stands"));
    }
    // Read anew: what counts follows from all places.
    context.settings.configuration = Configuration::read(user_file.as_deref(), variable)?;
    let in_force = context.configuration_as_understood(root).in_force();
    let Some(counts) = in_force.iter().find(|found| found.setting.name == setting.name) else {
        return Ok(Exit::Done);
    };
    tell(&change, counts, is_local, context)?;
    Ok(Exit::Done)
}

fn tell(
    change: &SettingChange,
    counts: &InForce,
    is_local: bool,
    context: &mut Context,
) -> Outcome<()> {
    let SettingChange { setting, path, before, after, .. } = change;
    let text = |value: &Value| printable(value.to_string().as_bytes());
    // A list is put together of all places, and so has no last word.
    let is_overruled = after
        .as_ref()
        .is_some_and(|after| !matches!(after, Value::List(_)) && *after != counts.value);
    if is_overruled {
        let places: Vec<String> = counts.given.iter().map(|it| it.place.to_string()).collect();
        let places = printable(places.join(", ").as_bytes());
        context.remark(format!("{} counts here, because of {places}", text(&counts.value)));
    }
    if context.is_json() {
        let json = |value: &Option<Value>| value.as_ref().map_or(Json::Null, json);
        return Ok(context.document(&ChangeDocument {
            name: setting.name,
            layer: if is_local { "workspace" } else { "user" },
            file: PathDocument::from(path.as_path()),
            before: json(before),
            after: json(after),
            value: self::json(&counts.value),
        })?);
    }
    if context.is_quiet() {
        return Ok(());
    }
    let (name, shown) = (setting.name, printable(path.as_os_str().as_encoded_bytes()));
    let was = match before {
        Some(before) => format!("it was {}", text(before)),
        None => "it was not there".to_owned(),
    };
    let told = if let Some(after) = after {
        format!("{name} is {} in {shown}; {was}", text(after))
    } else {
        let counts = text(&counts.value);
        format!("{name} is not in {shown} any more; {was}, and {counts} counts now")
    };
    Ok(context.printer.prose(&told)?)
}

fn unknown(name: &str) -> Failure {
    let message = format!("there is no setting `{}`", printable(name.as_bytes()));
    let hint = match Setting::nearest(name) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "`turnpoint config list --long` shows all settings".to_owned(),
    };
    Failure::own(Exit::Usage, "setting-not-found", message).hint(hint)
}

/// Those that are meant: all, those of a section, or one.
fn of_section(mut in_force: Vec<InForce>, asked: Option<&str>) -> Outcome<Vec<InForce>> {
    let Some(asked) = asked else { return Ok(in_force) };
    in_force.retain(|found| {
        let rest = found.setting.name.strip_prefix(asked);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    if in_force.is_empty() { Err(unknown(asked)) } else { Ok(in_force) }
}

/// Where a value stands.
fn origin(found: &InForce) -> String {
    let places: Vec<String> = found.given.iter().map(|given| given.place.to_string()).collect();
    if places.is_empty() { "default".to_owned() } else { places.join(", ") }
}

/// What each is for, below it.
fn explain(in_force: &[InForce], context: &mut Context) -> Outcome<()> {
    const LINES_OF_EACH: usize = 5;
    if printer::is_more_than_a_screen(LINES_OF_EACH * in_force.len()) {
        context.page()?;
    }
    let printer = &mut context.printer;
    for (at, found) in in_force.iter().enumerate() {
        if at > 0 {
            printer.gap()?;
        }
        let InForce { setting, value, .. } = found;
        printer.heading(&format!(
            "{} = {}",
            setting.name,
            printable(value.to_string().as_bytes())
        ))?;
        printer.hanging("  ", setting.about)?;
        let may = match in_workspace(setting) {
            Some(may) => format!("; the file of a workspace may {may}"),
            None => String::new(),
        };
        printer.hanging("  ", &format!("value: {}{may}", setting.kind.expected()))?;
        if found.given.is_empty() {
            printer.hanging("  ", "from: the default")?;
        } else {
            let default = (setting.default)();
            printer.hanging("  ", &format!("from: {}; the default is {default}", origin(found)))?;
        }
    }
    Ok(())
}

/// What the file of a workspace may do with a setting; `None`: nothing.
const fn in_workspace(setting: &Setting) -> Option<&'static str> {
    match setting.in_workspace {
        InWorkspace::Lower => Some("lower it"),
        InWorkspace::Only(true) => Some("only say true"),
        InWorkspace::Only(false) => Some("only say false"),
        InWorkspace::Add => Some("add some without `!`"),
        _ => None,
    }
}

fn list(in_force: &[InForce], with_origin: bool, context: &mut Context) -> Outcome<()> {
    if context.is_json() {
        let settings = in_force.iter().map(SettingDocument::from).collect();
        return Ok(context.document(&ListDocument { settings })?);
    }
    let shown = |value: &Value| printable(value.to_string().as_bytes());
    let mut table = if with_origin {
        Table::new([("SETTING", Align::Left), ("VALUE", Align::Left), ("ORIGIN", Align::Left)])
    } else {
        Table::new([("SETTING", Align::Left), ("VALUE", Align::Left)])
    };
    for found in in_force {
        let mut row = vec![found.setting.name.to_owned(), shown(&found.value)];
        if with_origin {
            row.push(origin(found));
        }
        table.row(row);
    }
    Ok(table.print(&mut context.printer)?)
}

fn get(in_force: &[InForce], name: &str, context: &mut Context) -> Outcome<()> {
    let found = in_force.iter().find(|found| found.setting.name == name);
    let found = found.ok_or_else(|| unknown(name))?;
    if context.is_json() {
        return Ok(context.document(&SettingDocument::from(found))?);
    }
    // For scripts: a list is a line for each of its texts, and what is not set is no line.
    match &found.value {
        Value::Unset => {}
        Value::List(texts) => {
            for text in texts {
                context.printer.line(printable(text.as_bytes()))?;
            }
        }
        value => context.printer.line(printable(value.to_string().as_bytes()))?,
    }
    Ok(())
}

impl From<&InForce> for SettingDocument {
    fn from(found: &InForce) -> Self {
        Self {
            name: found.setting.name,
            about: found.setting.about,
            expected: found.setting.kind.expected(),
            in_workspace: in_workspace(found.setting),
            value: json(&found.value),
            default: json(&(found.setting.default)()),
            origins: found.given.iter().map(OriginDocument::from).collect(),
        }
    }
}

impl From<&Given> for OriginDocument {
    fn from(given: &Given) -> Self {
        let value = json(&given.value);
        let of_file = |layer, path: &std::path::PathBuf, position: Option<Position>| Self {
            layer,
            file: Some(PathDocument::from(path.as_path())),
            line: position.map(|position| position.line),
            variable: None,
            value: value.clone(),
        };
        match &given.place {
            Place::UserFile { path, position } => of_file("user", path, *position),
            Place::WorkspaceFile { path, position } => of_file("workspace", path, *position),
            Place::Environment { variable } => Self {
                layer: "environment",
                file: None,
                line: None,
                variable: Some(variable.clone()),
                value,
            },
            _ => Self { layer: "other", file: None, line: None, variable: None, value },
        }
    }
}

/// Sizes in bytes, times in seconds.
fn json(value: &Value) -> Json {
    match value {
        Value::Switch(value) => json!(value),
        Value::Count(count) => json!(count),
        Value::Size(bytes) => json!(bytes),
        Value::Time(time) => json!(time.as_secs()),
        Value::Text(text) => json!(text),
        Value::List(texts) => json!(texts),
        _ => Json::Null,
    }
}
