//! Detection of sweeps from faults alone.

/// Faults on neighbours, one after the other, that make a sweep.
const RUN: u32 = 4;

/// Watches faults for chunks that follow each other.
#[derive(Clone, Debug, Default)]
pub(super) struct SweepDetector {
    last: Option<u32>,
    downwards: bool,
    run: u32,
}

impl SweepDetector {
    /// Takes in a fault; gives the direction, whether downwards, when this and those before it are
    /// a sweep.
    pub(super) fn fault(&mut self, chunk: u32) -> Option<bool> {
        let Some(last) = self.last.replace(chunk) else {
            self.run = 1;
            return None;
        };
        if chunk == last {
            return None;
        }
        let downwards = chunk < last;
        if chunk.abs_diff(last) > 1 {
            self.run = 1;
        } else if downwards == self.downwards {
            self.run += 1;
        } else {
            self.run = 2;
        }
        self.downwards = downwards;
        (self.run >= RUN).then_some(downwards)
    }
}

#[cfg(test)]
mod tests {
    use super::SweepDetector;

    fn found(faults: &[u32]) -> Vec<Option<bool>> {
        let mut detector = SweepDetector::default();
        faults.iter().map(|&chunk| detector.fault(chunk)).collect()
    }

    #[test]
    fn neighbours_in_one_direction_are_a_sweep() {
        assert_eq!(found(&[3, 4, 5, 6, 7])[2..], [None, Some(false), Some(false)]);
        assert_eq!(found(&[9, 8, 7, 7, 6, 5])[3..], [None, Some(true), Some(true)]);
    }

    #[test]
    fn jumps_and_turns_are_not() {
        assert_eq!(found(&[0, 2, 4, 6, 8, 10]), [None; 6]);
        assert_eq!(found(&[0, 1, 2, 1, 2, 1, 0]), [None; 7]);
    }
}
