//! What one look takes, and what an arena does that does not get all.

use std::cell::RefCell;

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn left(bytes: u64, reserve: u64) -> MemoryLeft {
    MemoryLeft { bytes, limit: "a test".to_owned(), reserve, most: 64 * GIB }
}

#[test]
fn processes_that_look_at_the_same_moment_take_no_more_than_there_is() {
    for spare in [GIB, 20 * GIB, 1000 * GIB] {
        let takes = |running| left(spare + GIB, GIB).at_once(u64::MAX, running).unwrap();
        assert!((1..=200).map(takes).sum::<u64>() <= spare, "{spare}");
        assert!((1..=200).all(|running| takes(running).is_multiple_of(STEP)));
        assert!(takes(0) == takes(1) && takes(1) <= spare / 16);
    }
}

#[test]
fn the_threads_that_run_are_read_where_the_system_says_so() {
    assert_eq!(running_in("0.20 0.18 0.12 7/80 11206\n"), Some(7));
    assert_eq!(running_in("0.20 0.18"), None);
    assert!(running() >= 1);
}

#[test]
fn when_little_is_left_a_look_takes_a_huge_page_and_never_more_than_there_is() {
    assert_eq!(left(GIB + 100 * MIB, GIB).at_once(u64::MAX, 200), Some(STEP));
    assert_eq!(left(GIB + MIB, GIB).at_once(u64::MAX, 200), None);
    assert_eq!(left(GIB + MIB, GIB).at_once(4096, 200), Some(MIB), "a small arena");
    assert_eq!(left(MIB, GIB).at_once(1, 1), None, "the reserve is left alone");
}

#[test]
fn what_a_look_allows_is_taken_once_and_soon() {
    let allowance = Allowance { bytes: AtomicU64::new(0), until: AtomicU64::new(0) };
    assert!(!allowance.take(1), "nobody has looked");
    allowance.renew(10);
    assert!(allowance.take(4) && allowance.take(6) && !allowance.take(1));
    allowance.renew(10);
    allowance.until.store(0, Ordering::Relaxed);
    assert!(!allowance.take(1), "the look is too long ago");
}

#[test]
fn texts_name_the_sizes_in_units_of_people_and_the_way_on() {
    let text = left(3 * GIB, GIB).shortage();
    assert_eq!(text, "a test has 3 GiB left, of which 1 GiB stay free for other programs");
    let text = left(3 * GIB, GIB).refusal(100 * GIB);
    assert_eq!(text, "100 GiB were asked for, and there are 64 GiB in all");
    let advice = left(3 * GIB, GIB).advice("host_memory");
    for part in ["option `host_memory`", "MemTotal", "UNSPOOL_CHECK_FREE=0"] {
        assert!(advice.contains(part), "{part} is not in: {advice}");
    }
}

#[test]
fn a_size_that_the_machine_does_not_have_at_all_is_refused() {
    let most = MemoryLeft::now().most;
    assert!(check_size(most).is_ok());
    assert_eq!(check_size(most + 1).unwrap_err().most, most);
}

#[test]
fn this_machine_says_how_much_is_left_and_who_says_so() {
    let left = memory_left();
    assert!(left.bytes > MIB && left.bytes <= left.most, "{left:?}");
    assert!(left.limit.contains("MemAvailable") || left.limit.contains("memory."), "{left:?}");
}

/// Pages that are only counted.
struct Counted {
    capacity: u64,
    present: u64,
    touched: RefCell<Vec<Range<u64>>>,
    refused: bool,
}

impl Counted {
    fn new(capacity: u64, present: u64) -> Counted {
        Counted { capacity, present, touched: RefCell::default(), refused: false }
    }
}

impl Pages for Counted {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn present(&self) -> u64 {
        self.present
    }

    fn touch(&self, range: Range<u64>) -> io::Result<()> {
        self.touched.borrow_mut().push(range);
        if self.refused { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
    }
}

#[test]
fn an_arena_grows_in_huge_pages_whose_bytes_are_present_before_it_takes_more() {
    let (growth, pages) = (Growth::default(), Counted::new(9 * MIB, 0));
    growth.reach(1, &pages).unwrap();
    assert_eq!(growth.reached(), STEP);
    growth.reach(STEP, &pages).unwrap();
    growth.reach(STEP + 1, &pages).unwrap();
    assert_eq!(growth.reached(), 2 * STEP);
    ALLOWANCE.until.store(0, Ordering::Relaxed);
    growth.reach(3 * STEP, &pages).unwrap();
    assert_eq!(pages.touched.borrow()[0].start, 0, "before another look");
    growth.fill(&pages).unwrap();
    assert_eq!(growth.reached(), 9 * MIB);
    let touched = pages.touched.borrow();
    assert!(touched.windows(2).all(|pair| pair[0].end == pair[1].start), "{touched:?}");
    assert_eq!(touched.last().map(|range| range.end), Some(9 * MIB));
}

#[test]
fn what_others_have_made_present_is_not_taken_again() {
    let (growth, pages) = (Growth::default(), Counted::new(16 * MIB, 8 * MIB));
    growth.reach(7 * MIB, &pages).unwrap();
    assert_eq!((growth.reached(), pages.touched.borrow().len()), (8 * MIB, 0));
    growth.fill(&pages).unwrap();
    assert_eq!(pages.touched.borrow()[0].start, 8 * MIB);
}

#[test]
fn pages_that_the_system_does_not_give_end_the_growth_where_it_is() {
    let growth = Growth::default();
    let pages = Counted { refused: true, ..Counted::new(16 * MIB, 0) };
    assert!(growth.fill(&pages).is_err());
}
