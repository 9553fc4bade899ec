//! The step that a program repeats: the longest part of its calls that is the same again and again.

/// Calls that are looked at.
const LOOKED_AT: usize = 1 << 14;
/// The longest step.
const LONGEST: usize = 1 << 12;

/// Calls from `start` on that repeat, `length` of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Period {
    pub(crate) start: usize,
    pub(crate) length: usize,
    pub(crate) period: usize,
}

/// Looks at the last calls for the shortest step that explains nearly as many of them as any, at
/// least three times in a row. Calls that are alike have the same sign.
pub(crate) fn period(signs: &[u64]) -> Option<Period> {
    let skipped = signs.len().saturating_sub(LOOKED_AT);
    let signs = &signs[skipped..];
    let all: Vec<Period> =
        (1..=(signs.len() / 3).min(LONGEST)).filter_map(|period| longest(signs, period)).collect();
    let most = all.iter().map(|one| one.length).max()?;
    let found = all.into_iter().find(|one| one.length * 10 >= most * 9)?;
    Some(Period { start: found.start + skipped, ..found })
}

/// The longest part that repeats after so many calls.
fn longest(signs: &[u64], period: usize) -> Option<Period> {
    let (mut start, mut best) = (0, (0, 0));
    for at in 0..signs.len() - period {
        if signs[at] == signs[at + period] {
            best = best.max((at + 1 - start, usize::MAX - start));
        } else {
            start = at + 1;
        }
    }
    let length = best.0 + period;
    (best.0 >= 2 * period).then(|| Period { start: usize::MAX - best.1, length, period })
}

#[cfg(test)]
mod tests {
    use super::{Period, period};

    #[test]
    fn the_shortest_step_that_explains_the_calls_is_found() {
        let mut signs = vec![9, 8, 7];
        signs.extend([1, 1, 2, 3].repeat(5));
        signs.extend([6, 5]);
        assert_eq!(period(&signs), Some(Period { start: 3, length: 20, period: 4 }));
        assert_eq!(period(&[4; 9]), Some(Period { start: 0, length: 9, period: 1 }));
    }

    #[test]
    fn what_does_not_repeat_three_times_has_no_step() {
        assert_eq!(period(&[1, 2, 3, 1, 2, 3]), None);
        assert_eq!(period(&[]), None);
        assert_eq!(period(&(0..100).collect::<Vec<u64>>()), None);
    }

    #[test]
    fn of_a_long_program_the_last_calls_count() {
        let signs: Vec<u64> = (0..40_000).map(|at| if at < 30_000 { at } else { at % 7 }).collect();
        let found = period(&signs).unwrap();
        assert_eq!((found.period, found.start + found.length), (7, 40_000));
        assert!(found.start == 30_000);
    }
}
