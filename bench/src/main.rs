//! The benchmarks of pg_rowsource: what measuring costs, and how accurate it is. `make bench` runs them; see
//! bench/README.md.
//!
//! Dependencies have one direction. `experiments` use `measure`, which uses `model`; `report` uses `model`
//! only.

mod experiments;
mod measure;
mod model;
mod report;

use clap::{Args, Parser, Subcommand};
use experiments::Experiment;
use measure::context::ExperimentContext;
use measure::progress::Progress;
use model::sizes::Sizes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Measures what pg_rowsource costs and how accurate it is")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs experiments. Writes a record and the report when an experiment ends
    Run(RunArgs),
    /// Writes the report (README.md and plots) from the records. From those of bench/results, also the
    /// figures of the book
    Report {
        /// The folder of the records
        #[arg(long, default_value = report::RESULTS)]
        output: PathBuf,
    },
    /// Lists the experiments
    List,
}

#[derive(Args)]
struct RunArgs {
    /// Names of experiments, or their first letters. Runs all if none is given
    what: Vec<String>,
    /// Uses small tables and few rounds, to test that everything works
    #[arg(long)]
    quick: bool,
    /// Multiplies the sizes of tables by this factor
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Multiplies the numbers of rounds by this factor
    #[arg(long, default_value_t = 1.0)]
    repeat: f64,
    /// The folder for records and report
    #[arg(long, default_value = report::RESULTS)]
    output: PathBuf,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::Report { output } => report::write(&output, experiments::names()).map(|()| true),
        Command::List => {
            for experiment in experiments::ALL {
                println!("{:<18} {}", experiment.name, experiment.question);
            }
            Ok(true)
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rowsource-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the chosen experiments. Returns whether all of them completed and all exact values are right.
fn run(arguments: &RunArgs) -> Result<bool, String> {
    let chosen = experiments::chosen(&arguments.what)?;
    let sizes = Sizes {
        quick: arguments.quick,
        scale: arguments.scale,
        repeat: arguments.repeat,
    };
    std::fs::create_dir_all(&arguments.output)
        .map_err(|error| format!("{}: {error}", arguments.output.display()))?;
    let expected: Vec<f64> = chosen
        .iter()
        .map(|experiment| expected_seconds(experiment, arguments, &sizes))
        .collect();
    let progress = Progress::new(expected.iter().sum());
    let (mut good, mut report) = (true, Ok(()));
    for (experiment, seconds) in chosen.iter().zip(&expected) {
        progress.begin(experiment.name, *seconds);
        let mut context = ExperimentContext::new(experiment.name, experiment.question, sizes, &progress);
        let completed = catch_unwind(AssertUnwindSafe(|| (experiment.run)(&mut context))).is_ok();
        progress.end();
        if !completed {
            progress.say(&format!("{}: did not complete", experiment.name));
            good = false;
            continue;
        }
        let record = context.finish();
        report::files::save(&arguments.output, &record)?;
        // A table of the book may come from an experiment that is still to run.
        report = report::write(&arguments.output, experiments::names());
        if let Err(error) = &report {
            progress.say(&format!(
                "{}: the report is not complete: {error}",
                experiment.name
            ));
        }
        progress.say(&report::terminal::text(&record));
        good &= record.exact_checks_hold();
    }
    progress.finish();
    report?;
    println!("report: {}", arguments.output.join("README.md").display());
    Ok(good)
}

/// Returns the seconds that the experiment took in its last run at these sizes. Estimates them if there is no
/// such run.
fn expected_seconds(experiment: &Experiment, arguments: &RunArgs, sizes: &Sizes) -> f64 {
    report::files::load(&arguments.output, experiment.name)
        .ok()
        .filter(|record| record.sizes == *sizes)
        .map_or_else(|| sizes.of_seconds(experiment.seconds), |record| record.seconds)
}
