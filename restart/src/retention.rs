//! Which checkpoints stay beside the last ones: pure functions.

use crate::manifest::Part;

/// The checkpoints that stay beside the last ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stays {
    /// So many of those with the lowest scores.
    pub best: u32,
    /// The first one of each so many steps, for good: those before the first multiple do not.
    pub every: Option<u64>,
}

impl Stays {
    /// The steps among `counting`, in ascending order, that stay by these scores of steps. Of two
    /// that are as good the older one is better; what has no score, or one that is not a number, is
    /// none of the best.
    pub(crate) fn of(self, counting: &[Part], scores: &[(u64, f64)]) -> Vec<u64> {
        let steps = counting.iter().map(|part| part.step);
        let mut best: Vec<(f64, u64)> = steps
            .clone()
            .filter_map(|step| {
                let (_, score) = scores.iter().rfind(|(of, _)| *of == step)?;
                (!score.is_nan()).then_some((*score, step))
            })
            .collect();
        best.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
        let best = best.into_iter().take(self.best as usize).map(|(_, step)| step);
        let mut last = 0;
        let periodic = steps.filter(|step| {
            let period = self.every.map_or(0, |every| step / every.max(1));
            period > std::mem::replace(&mut last, period)
        });
        let mut stays: Vec<u64> = best.chain(periodic).collect();
        stays.sort_unstable();
        stays.dedup();
        stays
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::manifest::Run;

    fn parts(steps: &[u64]) -> Vec<Part> {
        steps.iter().map(|&step| Part { step, run: Run(1) }).collect()
    }

    #[test]
    fn the_best_stay_by_their_scores() {
        let scores = [(1, 3.0), (2, 1.0), (3, f64::NAN), (4, -1.0), (5, 1.0), (9, -9.0)];
        let stays = |best, steps| Stays { best, every: None }.of(&parts(steps), &scores);
        assert_eq!(stays(2, &[1, 2, 3, 4, 5, 6]), [2, 4]);
        assert_eq!(stays(9, &[1, 2, 3, 4, 5, 6]), [1, 2, 4, 5]);
        assert_eq!(stays(1, &[3, 5, 6]), [5]);
        assert!(stays(0, &[1, 2]).is_empty() && stays(3, &[3, 6]).is_empty());
        let again = [(1, 0.0), (2, 1.0), (1, 2.0)];
        assert_eq!(
            Stays { best: 1, every: None }.of(&parts(&[1, 2]), &again),
            [2],
            "the last score"
        );
    }

    #[test]
    fn the_first_one_of_each_so_many_steps_stays() {
        let stays = |every, steps| Stays { best: 0, every }.of(&parts(steps), &[]);
        assert_eq!(stays(Some(100), &[0, 50, 99, 100, 150, 230, 240, 400]), [100, 230, 400]);
        assert!(stays(None, &[0, 50, 100]).is_empty());
    }

    proptest! {
        /// What stays stays, whatever else of what does not is deleted meanwhile.
        #[test]
        fn deleting_what_may_go_changes_nothing(
            has in prop::collection::btree_map(0_u64..60, -5_i32..5, 0..20),
            gone in prop::collection::vec(any::<bool>(), 60),
            best in 0_u32..4,
            every in prop::option::of(1_u64..20),
        ) {
            let steps: Vec<u64> = has.keys().copied().collect();
            let scores: Vec<(u64, f64)> =
                has.iter().map(|(step, score)| (*step, f64::from(*score))).collect();
            let stays = Stays { best, every };
            let before = stays.of(&parts(&steps), &scores);
            let left: Vec<u64> = steps
                .into_iter()
                .filter(|step| before.contains(step) || !gone[*step as usize])
                .collect();
            prop_assert_eq!(stays.of(&parts(&left), &scores), before);
        }
    }
}
