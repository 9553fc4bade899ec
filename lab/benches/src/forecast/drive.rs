//! A plain driver: the actions of a schedule become calls of a spool.

use std::collections::HashMap;
use std::time::Instant;

use unspool::{Dtype, Error, RegionSpec, Spool, Then, Use, Wait};
use unspool_schedule::{Action, Restores, Schedule};

use crate::wave::Wave;

/// Measured seconds of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    pub seconds: f64,
    pub compute: f64,
    pub copies: f64,
    pub save_stall: f64,
    pub restore_stall: f64,
    /// The median prefetch lead.
    pub lead: u64,
}

/// Executes `schedule`, with `lookahead` restores announced beyond the current one.
pub fn drive(
    spool: &Spool,
    schedule: impl Schedule + Clone,
    lookahead: usize,
    wave: &mut Wave,
) -> Result<Measured, Error> {
    let mut uses = Restores::new(schedule.clone()).map(|(step, last)| Use {
        version: step as i64,
        then: if last { Then::Ends } else { Then::Stays },
    });
    let mut expect = |count: usize| spool.expect_uses(uses.by_ref().take(count));
    let mut measured = Measured::default();
    let mut fingerprints = HashMap::new();
    let start = Instant::now();
    expect(lookahead)?;
    for action in schedule {
        let began = Instant::now();
        let spent = match action {
            Action::Forward { from, to } => {
                (from..to).for_each(|_| wave.step());
                &mut measured.compute
            }
            Action::Reverse { .. } => {
                wave.step();
                &mut measured.compute
            }
            Action::Save { step, .. } => {
                save(spool, step as i64, wave)?;
                fingerprints.insert(step, wave.fingerprint());
                &mut measured.copies
            }
            Action::Restore { step, .. } => {
                expect(1)?;
                restore(spool, step as i64, wave)?;
                assert_eq!(
                    fingerprints.get(&step),
                    Some(&wave.fingerprint()),
                    "state {step} came back otherwise"
                );
                &mut measured.copies
            }
            Action::Discard { step, .. } => {
                spool.discard(step as i64)?;
                &mut measured.copies
            }
            Action::End => break,
        };
        *spent += began.elapsed().as_secs_f64();
    }
    measured.seconds = start.elapsed().as_secs_f64();
    let stats = spool.stats()?;
    measured.save_stall = stats.application.save_stall.as_secs_f64();
    measured.restore_stall = stats.application.restore_stall.as_secs_f64();
    measured.copies -= measured.save_stall + measured.restore_stall;
    measured.lead = stats.application.prefetch_lead.median;
    Ok(measured)
}

pub fn save(spool: &Spool, version: i64, wave: &Wave) -> Result<(), Error> {
    let region = |name: &str| RegionSpec {
        name: name.into(),
        dtype: Dtype::Float32,
        shape: vec![wave.now.len() as u64],
    };
    let mut ticket =
        spool.save(version, vec![region("now"), region("before")], &Wait::default())?;
    put(&wave.now, ticket.host_region(0).expect("main memory"));
    put(&wave.before, ticket.host_region(1).expect("main memory"));
    ticket.commit()
}

pub fn restore(spool: &Spool, version: i64, wave: &mut Wave) -> Result<(), Error> {
    let ticket = spool.restore(version, &Wait::default())?;
    get(ticket.host_region(0).expect("main memory"), &mut wave.now);
    get(ticket.host_region(1).expect("main memory"), &mut wave.before);
    ticket.finish()
}

fn put(from: &[f32], to: &mut [u8]) {
    to.chunks_exact_mut(4).zip(from).for_each(|(to, from)| to.copy_from_slice(&from.to_ne_bytes()));
}

fn get(from: &[u8], to: &mut [f32]) {
    let value = |bytes: &[u8]| f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    from.chunks_exact(4).zip(to).for_each(|(from, to)| *to = value(from));
}
