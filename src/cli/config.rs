//! `turnpoint config`.

use serde::Serialize;
use serde_json::{Value as Json, json};
use turnpoint::path::printable;
use turnpoint::settings::{Given, InForce, Setting, Value};
use turnpoint::{Place, Position};

use crate::cli::arguments::{ConfigArguments, ConfigCommand};
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::json::PathDocument;
use crate::cli::table::{Align, Table};

#[derive(Serialize)]
struct ListDocument {
    settings: Vec<SettingDocument>,
}

#[derive(Serialize)]
struct SettingDocument {
    name: &'static str,
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

/// Shows settings.
pub(crate) fn run(arguments: &ConfigArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    let in_force = context.configuration_as_understood(&root).in_force();
    match &arguments.command {
        ConfigCommand::List { origin } => list(&in_force, *origin, context)?,
        ConfigCommand::Get { name } => get(&in_force, name, context)?,
    }
    Ok(Exit::Done)
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
    for InForce { setting, value, given, .. } in in_force {
        let mut row = vec![setting.name.to_owned(), shown(value)];
        if with_origin {
            let places: Vec<String> = given.iter().map(|given| given.place.to_string()).collect();
            row.push(if places.is_empty() { "default".to_owned() } else { places.join(", ") });
        }
        table.row(row);
    }
    Ok(table.print(&mut context.printer)?)
}

fn get(in_force: &[InForce], name: &str, context: &mut Context) -> Outcome<()> {
    let Some(found) = in_force.iter().find(|found| found.setting.name == name) else {
        let message = format!("there is no setting `{}`", printable(name.as_bytes()));
        let hint = match Setting::nearest(name) {
            Some(nearest) => format!("did you mean `{nearest}`?"),
            None => "`turnpoint config list` shows all settings".to_owned(),
        };
        return Err(Failure::own(Exit::Usage, "setting-not-found", message).hint(hint));
    };
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
