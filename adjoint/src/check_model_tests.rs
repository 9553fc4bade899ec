//! The interpreter against a naive model: plain lists of what is there, each rule in one line.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const STEPS: u64 = 4;
const SLOTS: usize = 3;
const ON_DEVICE: usize = 1;
const TIERS: [Option<TierKind>; 2] = [None, Some(TierKind::Device)];

/// The rules in plain lists, for `STEPS` steps, `SLOTS` slots and `ON_DEVICE` of them in the device
/// tier.
#[derive(Clone)]
struct Model {
    working: Option<u64>,
    copies: Vec<(u64, Option<TierKind>)>,
    to_reverse: Vec<u64>,
    ended: bool,
}

impl Model {
    fn new() -> Model {
        Model {
            working: Some(0),
            copies: Vec::new(),
            to_reverse: (0..STEPS).collect(),
            ended: false,
        }
    }

    fn allows(&self, action: Action) -> bool {
        let is_at = |step| self.working == Some(step);
        let next = self.to_reverse.last().copied();
        !self.ended
            && match action {
                Action::Forward { from, to } => {
                    is_at(from) && from < to && next.is_some_and(|next| to <= next)
                }
                Action::Save { step, tier } => is_at(step) && self.has_room((step, tier)),
                Action::Restore { step, tier } | Action::Discard { step, tier } => {
                    self.copies.contains(&(step, tier))
                }
                Action::Reverse { step } => is_at(step) && next == Some(step),
                Action::End => self.to_reverse.is_empty() && self.copies.is_empty(),
            }
    }

    fn has_room(&self, copy: (u64, Option<TierKind>)) -> bool {
        let on_device = self.copies.iter().filter(|(_, tier)| tier.is_some()).count();
        !self.copies.contains(&copy)
            && self.copies.len() < SLOTS
            && (copy.1.is_none() || on_device < ON_DEVICE)
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Forward { to, .. } => self.working = Some(to),
            Action::Save { step, tier } => self.copies.push((step, tier)),
            Action::Restore { step, .. } => self.working = Some(step),
            Action::Reverse { .. } => {
                self.to_reverse.pop();
                self.working = None;
            }
            Action::Discard { step, tier } => self.copies.retain(|copy| *copy != (step, tier)),
            Action::End => self.ended = true,
        }
    }
}

fn all_actions() -> Vec<Action> {
    let mut actions = std::vec![Action::End];
    for step in 0..=STEPS {
        actions.push(Action::Reverse { step });
        actions.extend((0..=STEPS).map(|to| Action::Forward { from: step, to }));
        for tier in TIERS {
            actions.push(Action::Save { step, tier });
            actions.push(Action::Restore { step, tier });
            actions.push(Action::Discard { step, tier });
        }
    }
    actions
}

/// The action that is drawn: mostly an allowed one, so that lists get long.
fn choose(model: &Model, draw: prop::sample::Index, any: bool) -> Action {
    let mut actions = all_actions();
    if !any {
        actions.retain(|action| model.allows(*action));
        // Actions that reverse a step are drawn more often than others.
        let reverses = actions.iter().filter(|a| matches!(a, Action::Reverse { .. })).copied();
        actions.extend(reverses.collect::<Vec<_>>().repeat(6));
    }
    if actions.is_empty() { Action::End } else { actions[draw.index(actions.len())] }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn the_first_action_that_is_refused_is_the_first_that_breaks_a_rule(
        draws in prop::collection::vec((any::<prop::sample::Index>(), 0..30), 1..80),
    ) {
        let limits = Limits { steps: Some(STEPS), slots: SLOTS as u64, ..Limits::none() }
            .with_tier(TierKind::Device, ON_DEVICE as u64);
        let (mut model, mut interpreter) = (Model::new(), Interpreter::new(limits));
        for (place, (draw, any)) in draws.into_iter().enumerate() {
            let action = choose(&model, draw, any == 0);
            let seen = interpreter.see(&action);
            prop_assert_eq!(seen.is_ok(), model.allows(action), "{:?}", action);
            if let Err(fault) = seen {
                prop_assert_eq!((fault.place, fault.action), (place as u64, Some(action)));
                // A refused action changes nothing.
                agree(&model, &interpreter)?;
                return Ok(());
            }
            model.carry_out(action);
            agree(&model, &interpreter)?;
        }
    }
}

fn agree(model: &Model, interpreter: &Interpreter) -> Result<(), TestCaseError> {
    prop_assert_eq!(interpreter.working(), model.working);
    let mut copies = model.copies.clone();
    copies.sort_unstable();
    prop_assert!(interpreter.kept().eq(copies));
    prop_assert_eq!(interpreter.counts().reverses, STEPS - model.to_reverse.len() as u64);
    prop_assert_eq!(interpreter.finish().is_ok(), model.ended);
    Ok(())
}
