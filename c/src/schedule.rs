//! Schedules of adjoints: which steps to keep, to restore, to compute again.

use std::ffi::{c_char, c_int};

use unspool_schedule::{
    Action, AnySchedule, OnlineRevolve, Revolve, Schedule, ScheduleError, StoreAll, Uniform, ZCut,
};

use crate::status::{Failure, call};
use crate::text::{free, give, handle_mut, text};

/// What the program does next. `from` and `to` are steps; state n is the state before step n.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnspoolActionKind {
    /// Advance the working state from state `from` to state `to`.
    Forward = 0,
    /// Save the working state, which is state `from`, as version `from`.
    Save = 1,
    /// Restore version `from`: the working state is state `from` then.
    Restore = 2,
    /// The working state is state `from`: take the adjoint back over step `from`.
    Reverse = 3,
    /// Discard version `from`.
    Discard = 4,
    /// Every step was reversed; nothing follows.
    End = 5,
}

/// One action of a schedule.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnspoolAction {
    /// A value of `unspool_action_kind`.
    pub kind: c_int,
    /// The step that it is about; for `UNSPOOL_FORWARD` the first one.
    pub from: i64,
    /// For `UNSPOOL_FORWARD` the step after the last one, else `from`.
    pub to: i64,
}

/// An iterator of actions.
#[derive(Debug)]
pub struct UnspoolSchedule {
    schedule: AnySchedule,
    has_ended: bool,
}

/// Makes a schedule for `steps` steps of which at most `slots` states are kept at a time.
///
/// | kind | `slots` |
/// | --- | --- |
/// | `store-all` | any; every state is kept |
/// | `revolve` | Revolve (Griewank and Walther, TOMS 2000): as few steps again as they allow |
/// | `online-revolve` | for `steps` 0, not known yet (Stumm and Walther, SISC 2010) |
/// | `uniform` | states at equal distances |
/// | `zcut` | zCut (GPUZIP): each step is computed again once at most |
///
/// The forward pass of an online schedule ends with `unspool_schedule_finish`. Give a schedule back
/// with `unspool_schedule_free`. Errors: `UNSPOOL_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_schedule_new(
    kind: *const c_char,
    steps: i64,
    slots: i64,
    schedule: *mut *mut UnspoolSchedule,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let kind = unsafe { text(kind, "kind") }?;
        let number = |value: i64, what| {
            u64::try_from(value).map_err(|_| Failure::invalid(format!("{what} is negative.")))
        };
        let made = make(kind, number(steps, "steps")?, number(slots, "slots")?)?;
        let made = Box::new(UnspoolSchedule { schedule: made, has_ended: false });
        // SAFETY: as above.
        unsafe { give(schedule, Box::into_raw(made), "schedule") }
    })
}

fn make(kind: &str, steps: u64, slots: u64) -> Result<AnySchedule, Failure> {
    let made: Result<AnySchedule, ScheduleError> = match kind {
        "store-all" => StoreAll::new(steps).map(Into::into),
        "revolve" => Revolve::new(steps, slots).map(Into::into),
        "online-revolve" => OnlineRevolve::new(slots).map(Into::into),
        "uniform" => Uniform::new(steps, slots).map(Into::into),
        "zcut" => ZCut::with_slots(steps, slots).map(Into::into),
        _ => {
            return Err(Failure::invalid(format!(
                "There is no schedule {kind:?}; there are store-all, revolve, online-revolve, \
                 uniform and zcut."
            )));
        }
    };
    made.map_err(refused)
}

fn refused(error: ScheduleError) -> Failure {
    Failure::invalid(format!("The schedule cannot be: {error}."))
}

/// Writes the next action to `action`. After `UNSPOOL_END` it is `UNSPOOL_END` again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_schedule_next(
    schedule: *mut UnspoolSchedule,
    action: *mut UnspoolAction,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let schedule = unsafe { handle_mut(schedule, "schedule") }?;
        let next = if schedule.has_ended { None } else { schedule.schedule.next() };
        let next = described(next.unwrap_or(Action::End));
        schedule.has_ended = next.kind == UnspoolActionKind::End as c_int;
        // SAFETY: as above.
        unsafe { give(action, next, "action") }
    })
}

fn described(action: Action) -> UnspoolAction {
    use UnspoolActionKind as Kind;
    let (kind, from, to) = match action {
        Action::Forward { from, to } => (Kind::Forward, from, to),
        Action::Save { step, .. } => (Kind::Save, step, step),
        Action::Restore { step, .. } => (Kind::Restore, step, step),
        Action::Reverse { step } => (Kind::Reverse, step, step),
        Action::Discard { step, .. } => (Kind::Discard, step, step),
        Action::End => (Kind::End, 0, 0),
    };
    UnspoolAction { kind: kind as c_int, from: from.cast_signed(), to: to.cast_signed() }
}

/// Tells a schedule of an unknown number of steps that the forward pass has ended: the working
/// state is state `steps`.
///
/// Errors: `UNSPOOL_INVALID` when the number was known, or cannot be that one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_schedule_finish(
    schedule: *mut UnspoolSchedule,
    steps: i64,
) -> c_int {
    call(|| {
        // SAFETY: the caller's duty.
        let schedule = unsafe { handle_mut(schedule, "schedule") }?;
        let steps = u64::try_from(steps).map_err(|_| Failure::invalid("steps is negative."))?;
        schedule.schedule.finish(steps).map_err(refused)
    })
}

/// Gives a schedule back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unspool_schedule_free(schedule: *mut UnspoolSchedule) {
    // SAFETY: the caller's duty.
    unsafe { free(schedule) };
}
