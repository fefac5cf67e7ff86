//! Counts the instructions of the OLTP-like cursors by phase of the executor, to show where the cost comes
//! from.

use crate::measure::context::ExperimentContext;
use crate::measure::phases::{self, Phases};
use crate::model::number::{count, difference};
use crate::model::table::Table;
use rowsource_tests::Server;
use rowsource_tests::oltp::{CURSORS, Cursor, KEYS};

struct Variant<'a> {
    name: &'static str,
    server: &'a Server,
    preload: &'static str,
    before: &'static str,
}

/// What each variant adds to the instructions of one cursor. The variant that measures comes last.
struct Counted {
    added: Vec<Phases>,
}

impl Counted {
    fn basic(&self) -> &Phases {
        &self.added[0]
    }

    fn measured(&self) -> &Phases {
        &self.added[self.added.len() - 1]
    }
}

/// Counts the instructions over the data of stopped servers.
pub fn run(context: &mut ExperimentContext, bare: &Server, measuring: &Server) {
    const PRELOADED: &str = "shared_preload_libraries=pg_rowsource";
    let variants = [
        Variant {
            name: "nothing loaded",
            server: bare,
            preload: "shared_preload_libraries=",
            before: "",
        },
        Variant {
            name: "basic",
            server: measuring,
            preload: PRELOADED,
            before: "SET pg_rowsource.statistics_level = basic;\n\n",
        },
        Variant {
            name: "sampfreq 128",
            server: measuring,
            preload: PRELOADED,
            before: "SET pg_rowsource.track = 'all';\n\n",
        },
    ];
    let mut columns = vec!["cursor", ""];
    columns.extend(phases::NAMES);
    let mut table = Table::new(
        "Instructions of one OLTP-like cursor in a loop, by phase of the executor",
        "The first line of each cursor has all of its instructions with nothing loaded; the others have what pg_rowsource adds. \
         Start, run, finish, end: the executor's four entry functions, with the hooks that they call. Elsewhere: parsing, \
         planning, PL/pgSQL, memory.",
        &columns,
    );
    let [few, many, nested] = &CURSORS;
    // A quick run counts only what the findings need.
    let quick = context.sizes.quick;
    let (cursors, base, others) = match quick {
        true => (vec![(few, false), (many, false)], &variants[0], &variants[2..]),
        false => (
            vec![
                (few, false),
                (many, false),
                (few, true),
                (many, true),
                (nested, false),
            ],
            &variants[0],
            &variants[1..],
        ),
    };
    let mut counted = Vec::new();
    for (at, &(cursor, one_by_one)) in cursors.iter().enumerate() {
        context.at(
            at as f64 / cursors.len() as f64,
            &format!("instructions of {}", cursor.name),
        );
        let name = format!(
            "{}{}",
            cursor.name,
            if one_by_one { ", rows one by one" } else { "" }
        );
        let all = of(context, &name, cursor, one_by_one, base);
        let mut row = vec![name.clone(), base.name.to_string()];
        row.extend(all.0.map(count));
        table.row(row);
        let mut added = Vec::new();
        for variant in others {
            let over = of(context, &name, cursor, one_by_one, variant).over(&all);
            let mut row = vec![name.clone(), variant.name.to_string()];
            row.extend(over.0.map(difference));
            table.row(row);
            added.push(over);
        }
        counted.push(Counted { added });
    }
    context.table(table);
    conclude(context, &counted);
}

/// Counts one cursor with one variant, and records the counts.
fn of(
    context: &mut ExperimentContext,
    name: &str,
    cursor: &Cursor,
    one_by_one: bool,
    variant: &Variant,
) -> Phases {
    let begin = if one_by_one { "" } else { "BEGIN;\n\n" };
    let found = phases::of_one(
        &variant.server.data(),
        &[variant.preload],
        &format!("{}{begin}", variant.before),
        "r record; n bigint := 0; k int;",
        &format!(
            "k := i % {KEYS} + 1; FOR r IN {} LOOP n := n + 1; END LOOP;",
            cursor.statement
        ),
    );
    context.measured(
        format!("instructions: {name}"),
        variant.name,
        "by phase",
        &found.0,
    );
    found
}

/// Separates the cost of rows from the cost of statements. The first two cursors differ only in their numbers
/// of rows, and so do the next two, which fetch rows one by one and are not in quick runs.
fn conclude(context: &mut ExperimentContext, counted: &[Counted]) {
    let rows = (CURSORS[1].rows - CURSORS[0].rows) as f64;
    let a_row = |count: fn(&Counted) -> &Phases, few: usize| {
        (count(&counted[few + 1]).run() - count(&counted[few]).run()) / rows
    };
    let all = counted[0].measured().total();
    let of_rows = a_row(Counted::measured, 0) * CURSORS[0].rows as f64;
    context.finding(format!(
        "Measuring at 1/128 adds {} instructions to the cursor of {} rows. {} of them belong to its rows ({:.0} a row, clock \
         readings included). {} belong to the statement, whatever its number of rows: set-up, the four entry functions, and \
         recording.",
        count(all),
        CURSORS[0].rows,
        count(of_rows),
        a_row(Counted::measured, 0),
        count(all - of_rows),
    ));
    if counted.len() > 3 {
        context.finding(format!(
            "In procedures that could commit, PL/pgSQL fetches rows one by one. Each row is then a separate run of the executor, and \
             costs {:.0} instructions more at 1/128, {:.0} more at level basic.",
            a_row(Counted::measured, 2),
            a_row(Counted::basic, 2),
        ));
    }
}
