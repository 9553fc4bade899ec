//! The order checker of the core, with an optional record of its input as text.

use unspool_verify::{Checker, Op, Violation, write_header, write_op};

/// Checks every wait, access and recording of one life.
#[derive(Clone, Debug, Default)]
pub struct OrderCheck {
    checker: Checker,
    text: Option<String>,
}

impl OrderCheck {
    /// Also records the operations as text from now on.
    pub fn keep_text(&mut self) {
        let mut text = String::new();
        write_header(&mut text).expect("a string takes everything");
        self.text = Some(text);
    }

    /// Forgets everything, because the machine has restarted.
    pub fn restart(&mut self) {
        let keeps = self.text.is_some();
        *self = OrderCheck::default();
        if keeps {
            self.keep_text();
        }
    }

    /// The operations of this life as text, if they were recorded.
    pub fn take_text(&mut self) -> Option<String> {
        self.text.take()
    }

    /// Checks the next operation.
    ///
    /// # Errors
    /// When an access is not ordered after one that it depends on.
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
        assert_eq!(verdict.counted.ops, 1);
    }
}
