//! One type for every schedule, for callers that do not know which they have.

use super::{
    Action, Listed, MultiLevel, OnlineRevolve, Revolve, Schedule, ScheduleError, StoreAll, Trace,
    Uniform, ZCut,
};

/// Any schedule of this crate. Each action is one comparison away from the schedule's own, without
/// allocation or a call through a table.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the schedules themselves say what they are")]
#[non_exhaustive]
pub enum AnySchedule {
    StoreAll(StoreAll),
    Revolve(Revolve),
    OnlineRevolve(OnlineRevolve),
    MultiLevel(MultiLevel),
    Uniform(Uniform),
    ZCut(ZCut),
    Listed(Listed),
    Trace(Trace),
}

/// Evaluates the same expression for whichever schedule it is.
macro_rules! each {
    ($($name:ident),*) => {
        macro_rules! whichever {
            ($any:expr, $schedule:ident => $value:expr) => {
                match $any {
                    $(AnySchedule::$name($schedule) => $value,)*
                }
            };
        }

        $(impl From<$name> for AnySchedule {
            fn from(schedule: $name) -> AnySchedule {
                AnySchedule::$name(schedule)
            }
        })*
    };
}

each!(StoreAll, Revolve, OnlineRevolve, MultiLevel, Uniform, ZCut, Listed, Trace);

impl Iterator for AnySchedule {
    type Item = Action;

    #[inline]
    fn next(&mut self) -> Option<Action> {
        whichever!(self, schedule => schedule.next())
    }
}

impl Schedule for AnySchedule {
    fn steps(&self) -> Option<u64> {
        whichever!(self, schedule => schedule.steps())
    }

    fn slots(&self) -> u64 {
        whichever!(self, schedule => schedule.slots())
    }

    fn finish(&mut self, steps: u64) -> Result<(), ScheduleError> {
        whichever!(self, schedule => schedule.finish(steps))
    }
}

#[cfg(test)]
#[path = "any_tests.rs"]
mod tests;
