//! Runs the protocol of the beats through all schedules and memory orders that a model checker (loom)
//! distinguishes.

mod loom_atomics;

use loom::thread;
use loom_atomics::{AsRequested, Loom, NoFence, NoOrder, Orderings};
use rowsource_core::beat::{Beats, SCOPES, Sleep};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

type Words<O> = Beats<Loom<O>>;

const BEATS: u64 = 2;

/// A session that runs calls of nodes, and what its beats tell it.
struct Session<O: Orderings> {
    words: Arc<Words<O>>,
    /// The sum of the counters at the last charge.
    charged: i64,
    beats: u64,
    /// It has taken over the words of another session.
    is_new: bool,
}

impl<O: Orderings> Session<O> {
    fn of(words: &Arc<Words<O>>) -> Self {
        words.expect_sums([0; 3]);
        Session {
            words: words.clone(),
            charged: 0,
            beats: 0,
            is_new: false,
        }
    }

    /// A call of a node that moves the counters by this much, and what its wrapper does then.
    fn call(&mut self, hits: i64) {
        let sum = self.charged + hits;
        if self.words.expected(2) == sum {
            return;
        }
        self.take();
        self.charge(hits);
    }

    fn take(&mut self) {
        if self.words.is_pending() {
            let taken = self.words.take([self.charged; 3]);
            self.beats += taken.beats;
            // The model's heart says for the nth beat that it stands for n. Words that have just passed to
            // this session say 0.
            let is_known = taken.gap_ns >= self.beats || self.is_new && taken.gap_ns == 0;
            assert!(taken.beats == 0 || is_known, "{taken:?}");
        }
    }

    /// As `usage::charge` does.
    fn charge(&mut self, hits: i64) {
        let more = (self.charged + hits).wrapping_sub(self.words.expected(0));
        if more == 0 {
            return;
        }
        self.charged += hits;
        if more == hits {
            self.words.expect_more(hits);
        } else {
            self.words.expect_sums([self.charged; 3]);
        }
    }

    /// The statement ends: it takes all beats, and no mark stays.
    fn end(&mut self) {
        self.beats += self.words.take([self.charged; 3]).beats;
        for scope in 0..3 {
            assert_eq!(self.words.expected(scope), self.charged, "scope {scope}");
        }
    }
}

fn heart<O: Orderings>(words: &Words<O>) {
    for number in 1..=BEATS {
        words.beat(number);
    }
}

/// Each schedule has up to two preemptions.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

fn each_beat_is_taken_once<O: Orderings>() {
    check(|| {
        let words = Arc::new(Words::<O>::default());
        let mut session = Session::of(&words);
        let beating = thread::spawn(move || heart(&words));
        session.call(1);
        session.call(0);
        beating.join().expect("the heart");
        session.call(0);
        session.call(1);
        session.end();
        assert_eq!(session.beats, BEATS);
    });
}

#[test]
fn beats_are_taken_once_and_no_mark_stays() {
    each_beat_is_taken_once::<AsRequested>();
}

/// The time that a beat stands for must be seen with the beat.
#[test]
#[should_panic(expected = "gap_ns")]
fn without_order_the_gap_is_of_an_older_beat() {
    each_beat_is_taken_once::<NoOrder>();
}

/// If the session charges nothing while a mark arrives that is late, its next call that uses blocks removes
/// it.
#[test]
fn a_late_mark_goes() {
    check(|| {
        let words = Arc::new(Words::<AsRequested>::default());
        let mut session = Session::of(&words);
        let beating = thread::spawn(move || heart(&words));
        session.take();
        beating.join().expect("the heart");
        session.call(1);
        for scope in 0..3 {
            assert_eq!(session.words.expected(scope), session.charged, "scope {scope}");
        }
    });
}

/// A mark of the session itself stays until it is found, whatever beats come.
#[test]
fn a_mark_of_the_session_is_found() {
    check(|| {
        let words = Arc::new(Words::<AsRequested>::default());
        let mut session = Session::of(&words);
        let beating = thread::spawn({
            let words = words.clone();
            move || heart(&words)
        });
        words.mark();
        // The statement that left the mark charges its account.
        session.charge(1);
        assert_ne!(words.expected(0), session.charged);
        session.call(0);
        beating.join().expect("the heart");
        session.end();
        assert_eq!(session.beats, BEATS);
    });
}

/// The words pass to another session while beats arrive that are meant for the one before. They are numbers
/// for both.
#[test]
fn beats_for_the_session_before_do_no_harm() {
    check(|| {
        let words = Arc::new(Words::<AsRequested>::default());
        for _ in 0..3 {
            words.beat(9);
        }
        words.take([0; 3]);
        let beating = thread::spawn({
            let words = words.clone();
            move || words.beat(9)
        });
        let own = Words::<AsRequested>::default();
        own.expect_sums([5; 3]);
        words.take_over(&own);
        let mut session = Session {
            words: words.clone(),
            charged: 5,
            beats: 0,
            is_new: true,
        };
        session.call(1);
        session.call(0);
        beating.join().expect("the heart");
        session.end();
        // The model checker lets a thread read the count of the session before, which it has overwritten
        // itself.
        assert!(session.beats <= 4, "{}", session.beats);
    });
}

/// How often a beat writes: what it stands for, the count, and the marks.
const WRITES: usize = 2 + SCOPES;

loom::thread_local! {
    /// How often this thread writes before it is killed.
    static WRITES_LEFT: Cell<usize> = Cell::new(usize::MAX);
}

/// Uses the orderings that the protocol requests, in threads that are killed.
struct Killed;

impl Orderings for Killed {
    fn used_for(requested: Ordering) -> Ordering {
        requested
    }

    fn may_write() -> bool {
        WRITES_LEFT.with(|left| {
            let now = left.get();
            left.set(now.saturating_sub(1));
            now > 0
        })
    }
}

/// A heart that is killed before any write of a beat, or after all, leaves what the next one and the session
/// cope with.
#[test]
fn a_heart_that_is_killed_at_any_step_can_be_followed_by_another() {
    for lasts in 0..=WRITES {
        check(move || {
            let words = Arc::new(Words::<Killed>::default());
            let mut session = Session::of(&words);
            let beating = thread::spawn({
                let words = words.clone();
                move || {
                    WRITES_LEFT.with(|left| left.set(lasts));
                    words.beat(1);
                }
            });
            session.call(1);
            beating.join().expect("the heart");
            // Another one, after the first has ended.
            let beating = thread::spawn({
                let words = words.clone();
                move || words.beat(2)
            });
            session.call(1);
            beating.join().expect("the heart");
            session.end();
            // The count is the second write.
            assert_eq!(session.beats, if lasts < 2 { 1 } else { 2 });
        });
    }
}

/// If no heart follows, the session takes the beat that was counted, and none of its marks stays.
#[test]
fn a_session_copes_with_half_a_beat() {
    for lasts in 0..=WRITES {
        check(move || {
            let words = Arc::new(Words::<Killed>::default());
            let mut session = Session::of(&words);
            let beating = thread::spawn(move || {
                WRITES_LEFT.with(|left| left.set(lasts));
                words.beat(1);
            });
            session.call(1);
            session.call(0);
            beating.join().expect("the heart");
            session.end();
            assert_eq!(session.beats, u64::from(lasts >= 2));
        });
    }
}

fn no_wish_is_slept_through<O: Orderings>() {
    check(|| {
        let words = Arc::new(Words::<O>::default());
        let sleep = Arc::new(Sleep::<Loom<O>>::default());
        let session = thread::spawn({
            let (words, sleep) = (words.clone(), sleep.clone());
            move || {
                words.may_wish();
                sleep.must_be_ended()
            }
        });
        sleep.begin();
        let sleeps = !words.wished().is_any();
        let is_woken = session.join().expect("the session");
        assert!(!sleeps || is_woken, "the heart sleeps, and a session wishes");
    });
}

#[test]
fn the_heart_sleeps_only_without_wishes() {
    no_wish_is_slept_through::<AsRequested>();
}

#[test]
#[should_panic(expected = "the heart sleeps")]
fn without_fences_the_heart_may_sleep_through_a_wish() {
    no_wish_is_slept_through::<NoFence>();
}

/// Of several sessions, one wakes up the heart.
#[test]
fn one_session_wakes_up_the_heart() {
    check(|| {
        let sleep = Arc::new(Sleep::<Loom<AsRequested>>::default());
        sleep.begin();
        let other = thread::spawn({
            let sleep = sleep.clone();
            move || sleep.must_be_ended()
        });
        let first = sleep.must_be_ended();
        assert_ne!(first, other.join().expect("the session"));
    });
}
