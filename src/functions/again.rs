//! `rowsource_statement()` prints the statement of a kept execution so that it can be run again.

use super::export::{Which, chosen};
use crate::pg::server::builtin_values::{is_builtin, printed, type_name};
use crate::pg::server::srf::{self, Rows};
use crate::pg::server::{self, fail};
use pgrx::{PgSqlErrorCode, pg_sys};
use rowsource_core::model::parameters::{Parameter, Value};
use rowsource_core::model::{KeptExecution, Parameters, PlanKey, PlanOrigin};
use rowsource_core::normalise::{Argument, Unrepeatable, literal, script};

/// What stands in the place of a value that is not known.
const UNKNOWN: &str = "?";

/// Adds the rows of `rowsource_statement()`: a row per line of a script.
///
/// # Errors
/// Raises an error if the statement cannot be run again, or if no such execution is kept.
pub fn lines(rows: &mut Rows, queryid: Option<i64>, planid: Option<i64>, which: Option<&str>) {
    let exported = chosen(queryid, planid, which.or(Some("slowest")));
    let (Which::Kept(_), Some(kept)) = (exported.which, &exported.kept) else {
        fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "rowsource_statement() prints the statement of an execution that was kept whole",
            "Known words for the argument \"which\": slowest, failed, cancelled.",
        )
    };
    let plan = &exported.plan;
    if !plan.key.toplevel() {
        cannot(
            &plan.key,
            "a function or procedure ran it",
            "It may use variables. Run the call of that function again.",
        )
    }
    let (arguments, missing) = arguments(&plan.key, kept);
    let is_generic = kept.run.origin == PlanOrigin::Generic;
    let own_text = own_text(&plan.key, kept);
    let text = own_text.as_deref().unwrap_or(&plan.description.text);
    if plan.description.is_truncated() && text.ends_with("...") {
        cannot(
            &plan.key,
            "its text is cut",
            "Only the beginnings of long texts are kept.",
        )
    }
    let script = script(text, &arguments, is_generic);
    let script = script.unwrap_or_else(|error| refuse(&plan.key, kept, error));
    if !missing.is_empty() {
        server::notify(
            "the script does not run as it is: not all values are known",
            "Put a value in the place of each question mark. The comments say what is known.",
        );
    }
    if own_text.is_none() && !plan.description.is_normalised() {
        rows.add_line("-- Its constants may be those of another execution with the same plan.");
    }
    for line in missing {
        // A name may have any characters.
        rows.add_line(&format!("-- {}", line.replace(char::is_control, " ")));
    }
    for line in script {
        rows.add_line(&line);
    }
}

/// Returns the text of an execution with its own constants, if that is kept. It is in the encoding of its
/// database.
fn own_text(key: &PlanKey, kept: &KeptExecution) -> Option<String> {
    let text = kept.sent.text.as_ref()?;
    (key.datid == server::database_id()).then(|| server::from_database(text))
}

/// Returns the parameters of an execution, and what is to be said of those whose values are not known.
///
/// # Errors
/// Raises an error if there are some and the user may not see them, or in another database.
fn arguments(key: &PlanKey, kept: &KeptExecution) -> (Vec<Argument>, Vec<String>) {
    let Some(Parameters { kept, count }) = kept.sent.parameters.as_ref().filter(|all| all.count > 0) else {
        return Default::default();
    };
    if !may_see(key) {
        fail(
            PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            "permission denied to see the parameters of another user's statement",
            "Superusers see them, and others after GRANT EXECUTE ON FUNCTION rowsource_statement_read_all() TO them.",
        )
    }
    if key.datid != server::database_id() {
        let database = server::database_name(key.datid).unwrap_or_default();
        cannot(
            key,
            "it ran in another database",
            &format!("Connect to the database \"{database}\"."),
        )
    }
    let mut missing = Vec::new();
    let mut arguments: Vec<Argument> = Vec::new();
    for (parameter, number) in kept.iter().zip(1..) {
        let type_name = type_name(parameter.type_id);
        let value = value(parameter).unwrap_or_else(|| {
            missing.push(format!(
                "${number} ({type_name}) is not kept{}",
                reason(parameter)
            ));
            UNKNOWN.to_owned()
        });
        arguments.push(Argument { type_name, value });
    }
    let first = kept.len() + 1;
    if first <= *count as usize {
        missing.push(format!(
            "${first} and those after it are not kept: there are {count}"
        ));
        arguments.resize_with(*count as usize, || Argument {
            type_name: "unknown".to_owned(),
            value: UNKNOWN.to_owned(),
        });
    }
    (arguments, missing)
}

/// Returns whether the user may see the parameters of a statement.
fn may_see(key: &PlanKey) -> bool {
    key.userid == server::user_id() || srf::may_execute("rowsource_statement_read_all")
}

/// Returns the values of parameters as SQL. Returns `None` if the user may not see them, or in another
/// database.
pub fn shown(key: &PlanKey, parameters: &Parameters) -> Option<Vec<String>> {
    if key.datid != server::database_id() || !may_see(key) {
        return None;
    }
    let known = |parameter| value(parameter).unwrap_or_else(|| UNKNOWN.to_owned());
    Some(parameters.kept.iter().map(known).collect())
}

/// Returns the value of a parameter as SQL. Returns `None` if it is not known.
fn value(parameter: &Parameter) -> Option<String> {
    let number = [pg_sys::INT2OID, pg_sys::INT4OID, pg_sys::INT8OID];
    match &parameter.value {
        Value::Null => Some("NULL".to_owned()),
        Value::Whole(bytes) => {
            let text = printed(parameter.type_id, bytes)?;
            match number.contains(&pg_sys::Oid::from(parameter.type_id)) {
                true => Some(text),
                false => Some(literal(&text)),
            }
        }
        Value::Beginning(..) | Value::Unknown => None,
    }
}

/// Returns why the value of a parameter is not known.
fn reason(parameter: &Parameter) -> String {
    match &parameter.value {
        Value::Beginning(bytes, size) => match printed(parameter.type_id, bytes) {
            Some(text) => {
                // The last character may be cut.
                let text = literal(text.trim_end_matches(char::REPLACEMENT_CHARACTER));
                format!(" whole: it has {size} bytes, and begins with {text}")
            }
            None => String::new(),
        },
        _ if !is_builtin(parameter.type_id) => ", because its type is none of PostgreSQL's own".to_owned(),
        _ => ": it is too large, compressed, or stored elsewhere".to_owned(),
    }
}

/// Raises the error that a script cannot be made.
fn refuse(key: &PlanKey, kept: &KeptExecution, error: Unrepeatable) -> ! {
    match error {
        Unrepeatable::Symbols if kept.sent.parameters.is_none() => cannot(
            key,
            "the values of its $1, $2 ... are not kept",
            "With pg_rowsource.keep_parameters = on, parameters are kept, and with pg_rowsource.keep_constants = on, constants.",
        ),
        Unrepeatable::Symbols => cannot(
            key,
            "its constants are not kept, which $1, $2 ... replace",
            "With pg_rowsource.keep_constants = on, they are.",
        ),
        Unrepeatable::NoPrepare => cannot(
            key,
            "it has parameters, and PREPARE takes no such statement",
            "rowsource_display() shows it.",
        ),
        Unrepeatable::SeveralStatements => cannot(
            key,
            "psql would take it for several statements",
            "It was sent with standard_conforming_strings = off.",
        ),
    }
}

/// Raises the error that a statement cannot be run again.
fn cannot(key: &PlanKey, why: &str, hint: &str) -> ! {
    fail(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        &format!(
            "the statement with queryid {} cannot be run again: {why}",
            key.queryid
        ),
        hint,
    )
}
