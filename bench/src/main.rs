//! The overhead and accuracy laboratory of pg_rowsource. `make bench` runs it; see bench/README.md.

mod cpu;
mod experiments;
mod lab;
mod machine;
mod narrow;
mod phases;
mod plot;
mod progress;
mod record;
mod report;
mod rounds;
mod session;
mod statistics;
mod tpch;

use clap::{Args, Parser, Subcommand};
use experiments::Experiment;
use lab::{Lab, Sizes};
use progress::Progress;
use record::Record;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "The overhead and accuracy laboratory of pg_rowsource")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs experiments; each one's record is written when it ends, and the report made anew
    Run(RunArgs),
    /// Makes the report (README.md and plots) from the records
    Report {
        /// The folder of the records
        #[arg(long, default_value = "bench/results")]
        output: PathBuf,
    },
    /// Lists the experiments
    List,
}

#[derive(Args)]
struct RunArgs {
    /// Names of experiments, or how names begin; all if none is given
    what: Vec<String>,
    /// Small tables and few rounds: whether it works, not how long it takes
    #[arg(long)]
    quick: bool,
    /// Tables so many times as large
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// So many times the rounds
    #[arg(long, default_value_t = 1.0)]
    repeat: f64,
    /// The folder for records and report
    #[arg(long, default_value = "bench/results")]
    output: PathBuf,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::Report { output } => report::write(&output).map(|()| true),
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

/// Runs what is wanted. Whether all of it ran to its end and was as it must be.
fn run(arguments: &RunArgs) -> Result<bool, String> {
    let wanted = experiments::chosen(&arguments.what)?;
    let sizes = Sizes {
        quick: arguments.quick,
        scale: arguments.scale,
        repeat: arguments.repeat,
    };
    std::fs::create_dir_all(&arguments.output)
        .map_err(|error| format!("{}: {error}", arguments.output.display()))?;
    let expected: Vec<f64> = wanted
        .iter()
        .map(|experiment| expected_seconds(experiment, arguments, &sizes))
        .collect();
    let progress = Progress::new(expected.iter().sum());
    let mut good = true;
    for (experiment, seconds) in wanted.iter().zip(&expected) {
        progress.begin(experiment.name, *seconds);
        let mut lab = Lab::new(experiment, sizes, &progress);
        let ran = catch_unwind(AssertUnwindSafe(|| (experiment.run)(&mut lab))).is_ok();
        progress.end();
        if !ran {
            progress.say(&format!("{}: did not run to its end", experiment.name));
            good = false;
            continue;
        }
        let record = lab.finish();
        record.save(&arguments.output)?;
        report::write(&arguments.output)?;
        progress.say(&record.to_text());
        good &= record.is_as_it_must();
    }
    progress.finish();
    println!("report: {}", arguments.output.join("README.md").display());
    Ok(good)
}

/// What it took last time, with the same settings on this machine, or what it takes where it was written.
fn expected_seconds(experiment: &Experiment, arguments: &RunArgs, sizes: &Sizes) -> f64 {
    Record::load(&arguments.output, experiment.name)
        .ok()
        .filter(|record| record.sizes == *sizes)
        .map_or_else(|| sizes.of_seconds(experiment.seconds), |record| record.seconds)
}
