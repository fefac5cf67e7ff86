//! The loop without a terminal.

use super::*;
use crate::screens::{Screen, View};
use crate::signals::Signal;

/// A full disk takes the recording, and not the screen.
#[test]
fn the_screen_goes_on_without_its_recording() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/recording.jsonl");
    let mut recording = Recording::open(&file).expect("a recording");
    let first = recording.next().expect("a line").expect("a refresh");
    let screen = Screen::List(View::Sessions);
    let app = App::new(screen, String::new(), Duration::from_secs(1), false);
    let full = File::options()
        .write(true)
        .open("/dev/full")
        .expect("a full disk");
    let theme = Theme { has_colour: false };
    let mut top = Top::new(app, Source::Recording(recording), Some(full), theme);
    top.take(Reply::Snapshot(Box::new(first.clone())));
    let says = "the recording has ended: No space left";
    assert!(top.app.status.starts_with(says), "{}", top.app.status);
    assert!(top.record.is_none() && top.app.data.at == first.at);
    top.app.status.clear();
    top.take(Reply::Snapshot(Box::new(first)));
    assert_eq!(top.app.status, "");
}

/// The way to the server and back is no work of it: the next refresh waits only for that. What lies between
/// refreshes then is said.
#[test]
fn a_refresh_waits_for_what_the_server_worked_and_its_pace_is_said() {
    let ms = Duration::from_millis;
    let (worker, _answers) = Worker::without_threads();
    let app = App::new(Screen::List(View::Live), String::new(), ms(2_000), false);
    let mut top = Top::new(app, Source::Server(worker), None, Theme { has_colour: false });
    for (worked, rest) in [(0, 0), (100, 400), (500, 2_000)] {
        top.ask();
        let snapshot = Snapshot {
            at: 1.0,
            took: ms(worked),
            ..Snapshot::default()
        };
        top.due = Instant::now();
        top.take(Reply::Snapshot(Box::new(snapshot)));
        let left = top.due.duration_since(Instant::now());
        assert!(
            left <= ms(rest) && left + ms(300) >= ms(rest),
            "{worked}: {left:?}"
        );
    }
    for (real, says) in [(500, None), (620, None), (700, Some(700)), (2_000, Some(2_000))] {
        assert_eq!(slower(ms(real), ms(500)), says.map(ms), "{real}");
    }
    top.last_asked_at = Instant::now().checked_sub(ms(1_200));
    top.ask();
    let lines = |app: &mut App| {
        let mut terminal = Terminal::new(ratatui::backend::TestBackend::new(100, 20)).expect("a terminal");
        let plain = Theme { has_colour: false };
        terminal.draw(|frame| draw(frame, app, plain)).expect("a frame");
        crate::draw::lines_of(terminal.backend().buffer()).remove(0)
    };
    assert!(
        lines(&mut top.app).contains("  every 1.2 s"),
        "{}",
        lines(&mut top.app)
    );
    top.ask();
    assert!(
        lines(&mut top.app).contains("  every 0.5 s"),
        "{}",
        lines(&mut top.app)
    );
    // A pause is no pace.
    (top.app.paused, top.asked_at) = (true, None);
    top.refresh().expect("no error");
    assert!(top.last_asked_at.is_none());
}

/// Nobody answers then: the program ends, and does not wait for ever.
#[test]
fn a_thread_that_has_ended_ends_the_program() {
    for is_said in [true, false] {
        let top = || {
            let (worker, replies) = Worker::without_threads();
            if is_said {
                let reply = Reply::Ended("it has ended".to_owned());
                replies.send(reply).expect("an answer");
            }
            let screen = Screen::List(View::Sessions);
            let app = App::new(screen, String::new(), Duration::from_secs(1), false);
            Top::new(app, Source::Server(worker), None, Theme { has_colour: false })
        };
        let says = if is_said { "it has ended" } else { THREAD_ENDED };
        let error = top().refresh().expect_err("an end");
        assert_eq!(error.to_string(), says);
        assert_eq!(top().print(false).expect_err("an end"), says);
    }
}

/// A key that is typed while a frame waits for texts would answer what nobody has seen.
#[test]
fn the_question_before_a_signal_is_drawn_at_once() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/recording.jsonl");
    let recording = Recording::open(&file).expect("a recording");
    let screen = Screen::List(View::Sessions);
    let app = App::new(screen, String::new(), Duration::from_secs(1), false);
    let theme = Theme { has_colour: false };
    let mut top = Top::new(app, Source::Recording(recording), None, theme);
    assert!(top.may_draw());
    top.texts_asked_at = Some(Instant::now() + Duration::from_secs(60));
    assert!(!top.may_draw());
    top.app.mode = Mode::Confirm(Signal::Terminate, Box::default());
    assert!(top.may_draw());
}

/// A pause stops the screen, and not the recording. A key that asks for something shows what is new.
#[test]
fn a_pause_does_not_stop_the_recording() {
    let path = std::env::temp_dir().join(format!("rowsource-paused-{}", std::process::id()));
    let file = record::create(&path).expect("a file");
    let (worker, answers) = Worker::without_threads();
    let app = App::new(Screen::List(View::Sessions), String::new(), Duration::ZERO, false);
    let mut top = Top::new(
        app,
        Source::Server(worker),
        Some(file),
        Theme { has_colour: false },
    );
    let refresh = |top: &mut Top, at: f64| {
        top.due = Instant::now();
        top.refresh().expect("no error");
        let is_asked = top.asked_at.is_some();
        let snapshot = Snapshot {
            at,
            ..Snapshot::default()
        };
        if is_asked {
            answers
                .send(Reply::Snapshot(Box::new(snapshot)))
                .expect("an answer");
            top.due = Instant::now() + Duration::from_secs(60);
            top.refresh().expect("no error");
        }
        (is_asked, top.app.data.at)
    };
    assert_eq!(refresh(&mut top, 1.0), (true, 1.0));
    top.app.paused = true;
    assert_eq!(refresh(&mut top, 2.0), (true, 1.0));
    assert_eq!(refresh(&mut top, 3.0), (true, 1.0));
    top.is_wanted = true;
    assert_eq!(refresh(&mut top, 4.0), (true, 4.0));
    assert_eq!(refresh(&mut top, 5.0), (true, 4.0));
    top.app.paused = false;
    top.refresh().expect("no error");
    assert_eq!(top.app.data.at, 5.0);
    assert_eq!(refresh(&mut top, 6.0), (true, 6.0));
    // Without a recording, a pause asks for nothing.
    top.record = None;
    top.app.paused = true;
    assert_eq!(refresh(&mut top, 7.0), (false, 6.0));
    let mut recording = Recording::open(&path).expect("a recording");
    let recorded = std::iter::from_fn(|| recording.next().expect("a line"));
    assert_eq!(
        recorded.map(|snapshot| snapshot.at).collect::<Vec<_>>(),
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    );
    std::fs::remove_file(path).expect("it is removed");
}
