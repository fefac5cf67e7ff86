//! What the program makes of a server's answers.

use super::fake_server::{Answer, FakeServer};
use crate::server::Failure;

/// Runs a future in a runtime of its own.
fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}

/// A server ends a session in its own language: the name of the severity is translated, too.
#[test]
fn an_end_in_any_language_is_one() {
    for (severity, plain, is_gone) in [
        ("FATAL", "FATAL", true),
        ("ВАЖНО", "FATAL", true),
        ("KATASTROFALNY", "FATAL", true),
        ("BŁĄD", "ERROR", false),
    ] {
        let fields = vec![
            (b'S', severity),
            (b'V', plain),
            (b'C', "57P01"),
            (b'M', "it ends"),
        ];
        let server = FakeServer::start(move |_| Answer::Error(fields.clone()));
        let answer = run(async { server.connect().await.snapshot(&[]).await });
        let failure = answer.expect_err("no answer");
        assert_eq!(failure.text(), "it ends");
        assert_eq!(matches!(failure, Failure::Gone(_)), is_gone, "{severity}");
    }
}

/// The bytes are asked for, and nothing panics.
#[test]
fn an_answer_that_is_not_utf8_is_asked_for_as_bytes() {
    let server = FakeServer::start(|sql| {
        let row = "[{\"version\": \"gr\u{f6}n\"}]";
        let latin: Vec<u8> = row.chars().map(|letter| letter as u8).collect();
        let is_hex = sql.contains("pg_catalog.encode(pg_catalog.textsend(json_strip_nulls");
        let digits = || latin.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Answer::Rows(vec![if is_hex { digits().into() } else { latin }])
    });
    let snapshot = run(async { server.connect().await.snapshot(&[]).await });
    assert_eq!(snapshot.expect("an answer").server.version, "gr\u{fffd}n");
}
