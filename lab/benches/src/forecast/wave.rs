//! The computation: a wave equation in one dimension, limited by memory bandwidth as most are.

/// Two time levels of a field.
pub struct Wave {
    pub now: Vec<f32>,
    pub before: Vec<f32>,
    sweeps: usize,
}

impl Wave {
    /// Two levels of `bytes` in total, and `sweeps` sweeps over them per step.
    pub fn new(bytes: u64, sweeps: usize) -> Wave {
        let points = bytes as usize / 8;
        let bump = |i: usize| (i as f32 / points as f32 - 0.5).mul_add(-40.0, 0.0).abs().min(1.0);
        Wave { now: (0..points).map(bump).collect(), before: vec![0.0; points], sweeps }
    }

    /// A step forward.
    pub fn step(&mut self) {
        for _ in 0..self.sweeps {
            let inner = self.now.windows(3).zip(&mut self.before[1..]);
            for (near, before) in inner {
                let curve = near[0] - 2.0 * near[1] + near[2];
                *before = 2.0 * near[1] - *before + 0.2 * curve;
            }
            std::mem::swap(&mut self.now, &mut self.before);
        }
    }

    /// A value that differs between states.
    pub fn fingerprint(&self) -> f64 {
        self.now.iter().step_by(1009).map(|x| f64::from(*x)).sum()
    }
}
