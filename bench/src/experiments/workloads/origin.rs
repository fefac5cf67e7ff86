//! Where the cost comes from: instructions of the OLTP-like cursors, by phase of the executor.

use super::procedures::{CURSORS, Cursor, KEYS};
use crate::lab::Lab;
use crate::phases::{self, Phases};
use crate::record::Table;
use crate::statistics::{count, difference};
use rowsource_tests::Server;

struct Variant<'a> {
    name: &'static str,
    server: &'a Server,
    preload: &'static str,
    before: &'static str,
}

/// A cursor, what it takes with nothing loaded, and what the other variants add, the measured one last.
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

/// Counts over the data of stopped servers.
pub fn run(lab: &mut Lab, bare: &Server, measuring: &Server) {
    const OURS: &str = "shared_preload_libraries=pg_rowsource";
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
            preload: OURS,
            before: "SET pg_rowsource.statistics_level = basic;\n\n",
        },
        Variant {
            name: "sampfreq 128",
            server: measuring,
            preload: OURS,
            before: "SET pg_rowsource.track = 'all';\n\n",
        },
    ];
    let mut columns = vec!["cursor", ""];
    columns.extend(phases::NAMES);
    let mut table = Table::new(
        "Where from: instructions of one OLTP-like cursor in a loop, by phase of the executor",
        "The first line of each cursor is all of its instructions with nothing loaded, the others are what they add to it. \
         Start, run, finish, end: the executor's four entries, with what the hooks do there; elsewhere: parsing, planning, \
         PL/pgSQL, memory.",
        &columns,
    );
    let [few, many, nested] = &CURSORS;
    // A quick run asks only what its sentence needs.
    let quick = lab.sizes.quick;
    let (asked, base, others) = match quick {
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
    for (at, &(cursor, one_by_one)) in asked.iter().enumerate() {
        lab.at(
            at as f64 / asked.len() as f64,
            &format!("instructions of {}", cursor.name),
        );
        let name = format!(
            "{}{}",
            cursor.name,
            if one_by_one { ", rows one by one" } else { "" }
        );
        let all = of(lab, &name, cursor, one_by_one, base);
        let mut row = vec![name.clone(), base.name.to_string()];
        row.extend(all.0.map(count));
        table.row(row);
        let mut added = Vec::new();
        for variant in others {
            let over = of(lab, &name, cursor, one_by_one, variant).over(&all);
            let mut row = vec![name.clone(), variant.name.to_string()];
            row.extend(over.0.map(difference));
            table.row(row);
            added.push(over);
        }
        counted.push(Counted { added });
    }
    lab.table(table);
    conclude(lab, &counted);
}

fn of(lab: &mut Lab, name: &str, cursor: &Cursor, one_by_one: bool, variant: &Variant) -> Phases {
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
    lab.measured(
        format!("instructions: {name}"),
        variant.name,
        "by phase",
        &found.0,
    );
    found
}

/// The first two cursors differ in their rows only: by tens, and, but in a quick run, one by one.
fn conclude(lab: &mut Lab, counted: &[Counted]) {
    let rows = (CURSORS[1].rows - CURSORS[0].rows) as f64;
    let a_row = |figure: fn(&Counted) -> &Phases, few: usize| {
        (figure(&counted[few + 1]).run() - figure(&counted[few]).run()) / rows
    };
    let all = counted[0].measured().in_all();
    let of_rows = a_row(Counted::measured, 0) * CURSORS[0].rows as f64;
    lab.finding(format!(
        "Of the {} instructions that measuring at 1/128 adds to the cursor of {} rows, {} are its rows' ({:.0} a row, clock \
         readings included) and {} the statement's own, which it pays once however many rows it has: set-up, the four entries, \
         and the way to the store.",
        count(all),
        CURSORS[0].rows,
        count(of_rows),
        a_row(Counted::measured, 0),
        count(all - of_rows),
    ));
    if counted.len() > 3 {
        lab.finding(format!(
            "Where PL/pgSQL fetches rows one by one, in procedures that could commit, each row is a run of the executor of its own, \
             and a row costs {:.0} instructions more at 1/128, {:.0} at level basic.",
            a_row(Counted::measured, 2),
            a_row(Counted::basic, 2),
        ));
    }
}
