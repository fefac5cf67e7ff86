//! The screen as JSON (`--json`): its rows, and what is missing in them.

use serde_json::{Value, json};

use crate::app::App;
use crate::data::Data;
use crate::format::without_controls;
use crate::screens::{Screen, missing_privilege};

/// Returns the screen.
pub fn of(app: &App) -> Value {
    let (table, ..) = app.table();
    let data = &app.data;
    let events = data.events.iter();
    let events = events.map(|event| json!({ "at": event.at, "kind": event.kind, "text": event.text }));
    let mut it = json!({
        "title": table.title.whole(),
        "view": shown(app),
        "at": data.at,
        "interval": app.screen().seconds(data),
        "server": {
            "version": data.server.version,
            "standby": data.server.standby,
            "database": data.server.database,
            "user": data.server.user,
        },
        "rows": table.json(),
        "total": app.screen().total(data),
        "notes": table.notes,
        "missing": missing(data),
        "events": events.collect::<Vec<_>>(),
    });
    clean(&mut it);
    it
}

/// Replaces the control characters of all texts: JSON writes those from U+0080 on as they are.
fn clean(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_controls(text),
        Value::Array(values) => values.iter_mut().for_each(clean),
        Value::Object(values) => values.values_mut().for_each(clean),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the name of the view whose rows these are: sessions, if the server has nothing else.
fn shown(app: &App) -> Value {
    match app.screen() {
        _ if !app.data.server.has_extension() => json!("sessions"),
        Screen::List(view) => json!(view.name()),
        Screen::LivePlan(_) => json!("live plan"),
        _ => Value::Null,
    }
}

/// Returns what was asked for and is not there, and why: the extension, what others run, a view of the server
/// that could not be read.
fn missing(data: &Data) -> Vec<Value> {
    let mut missing = Vec::new();
    if !data.server.has_extension() && data.at > 0.0 {
        missing.push(json!({ "what": "extension", "why": crate::server::missing_extension(&data.server) }));
    }
    let privilege = missing_privilege(data);
    missing.extend(privilege.map(|why| json!({ "what": "privilege", "why": why })));
    for text in &data.missing {
        let (part, why) = text.split_once(": ").unwrap_or(("", text));
        missing.push(json!({ "what": "answer", "part": part, "why": crate::format::one_line(why) }));
    }
    missing
}
