//! The order checker of the core, and the text of what it was told when somebody asks for that.

use unspool_verify::{Checker, Op, Violation, write_header, write_op};

/// Sees every wait, access and recording of one life.
#[derive(Clone, Debug, Default)]
pub struct OrderCheck {
    checker: Checker,
    text: Option<String>,
}

impl OrderCheck {
    /// From now on what is seen is also written down.
    pub fn keep_text(&mut self) {
        let mut text = String::new();
        write_header(&mut text).expect("a string takes everything");
        self.text = Some(text);
    }

    /// The machine has restarted: nothing that was before orders anything.
    pub fn restart(&mut self) {
        let keeps = self.text.is_some();
        *self = OrderCheck::default();
        if keeps {
            self.keep_text();
        }
    }

    /// What was seen in this life, if it was written down.
    pub fn take_text(&mut self) -> Option<String> {
        self.text.take()
    }

    /// Sees the next operation.
    ///
    /// # Errors
    /// When it is not ordered with what it depends on.
    pub fn see(&mut self, op: &Op<&str>) -> Result<(), Violation> {
        if let Some(text) = &mut self.text {
            write_op(text, op).expect("a string takes everything");
        }
        self.checker.see_named(op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unspool_verify::{Agent, check_text};

    #[test]
    fn the_text_is_that_of_the_last_life() {
        let mut order = OrderCheck::default();
        assert_eq!(order.take_text(), None);
        order.keep_text();
        for event in [1, 2] {
            assert!(order.see(&Op::Record { event, on: Agent::Host }).is_ok());
        }
        order.restart();
        assert!(order.see(&Op::Record { event: 1, on: Agent::Host }).is_ok());
        let verdict = check_text(&order.take_text().unwrap()).unwrap();
        assert_eq!(verdict.figures.ops, 1);
    }
}
