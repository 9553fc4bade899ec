//! How plain values lie in a file: numbers of variable length, texts and lists with their lengths
//! in front. What is read is limited by the bytes that are there, so that a damaged length costs
//! nothing.

/// Why bytes are not what was looked for, in a sentence without its end.
pub(crate) type Broken = &'static str;

/// The bytes that are left to be read.
pub(crate) struct In<'a>(pub(crate) &'a [u8]);

impl In<'_> {
    fn byte(&mut self) -> Result<u8, Broken> {
        let (first, rest) = self.0.split_first().ok_or("it ends within a value")?;
        self.0 = rest;
        Ok(*first)
    }

    /// Refuses bytes that nothing has read.
    pub(crate) fn end(&self) -> Result<(), Broken> {
        if self.0.is_empty() { Ok(()) } else { Err("it is longer than what is in it") }
    }
}

/// A value that can be written and read.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut In) -> Result<Self, Broken>;
}

impl Wire for u64 {
    /// Seven bits a byte, the lowest first; the highest bit says that more follow.
    fn put(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest > 0x7f {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn take(from: &mut In) -> Result<u64, Broken> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = from.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number has more than 64 bits")
    }
}

/// Numbers that are kept as a `u64`.
macro_rules! narrow {
    ($($narrow:ty)*) => {$(
        impl Wire for $narrow {
            fn put(&self, out: &mut Vec<u8>) {
                u64::from(*self).put(out);
            }

            fn take(from: &mut In) -> Result<$narrow, Broken> {
                <$narrow>::try_from(u64::take(from)?).map_err(|_| "a number is too large")
            }
        }
    )*};
}

narrow!(u8 u16 u32);

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn take(from: &mut In) -> Result<bool, Broken> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("a flag is neither set nor not"),
        }
    }
}

impl Wire for i32 {
    /// Small numbers of either sign become small numbers.
    fn put(&self, out: &mut Vec<u8>) {
        ((self << 1 ^ self >> 31) as u32).put(out);
    }

    fn take(from: &mut In) -> Result<i32, Broken> {
        let bits = u32::take(from)?;
        Ok((bits >> 1) as i32 ^ -((bits & 1) as i32))
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn take(from: &mut In) -> Result<String, Broken> {
        let length = u64::take(from)? as usize;
        let (text, rest) = from.0.split_at_checked(length).ok_or("it ends within a text")?;
        from.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| "a text is not UTF-8")
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        self.iter().for_each(|one| one.put(out));
    }

    fn take(from: &mut In) -> Result<Vec<T>, Broken> {
        let length = u64::take(from)?;
        // Nothing has less than a byte.
        if length > from.0.len() as u64 {
            return Err("a list is longer than what is left");
        }
        (0..length).map(|_| T::take(from)).collect()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut In) -> Result<(A, B), Broken> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

/// Writes and reads a record field by field.
macro_rules! wire {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::wire::Wire::put(&self.$field, out);)*
            }

            fn take(from: &mut $crate::wire::In) -> Result<$name, $crate::wire::Broken> {
                Ok($name { $($field: $crate::wire::Wire::take(from)?,)* })
            }
        }
    };
}

pub(crate) use wire;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{In, Wire};

    fn round<T: Wire + PartialEq + std::fmt::Debug>(value: T) {
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        let mut from = In(&bytes);
        assert_eq!(T::take(&mut from), Ok(value));
        assert_eq!(from.end(), Ok(()));
    }

    proptest! {
        #[test]
        fn values_come_back(
            number: u64, narrow: u32, signed: i32, texts: Vec<String>, pairs: Vec<(u64, u8)>,
        ) {
            round(number);
            round(narrow);
            round(signed);
            round(texts);
            round(pairs);
        }

        #[test]
        fn any_bytes_have_an_answer(bytes: Vec<u8>) {
            let _one = Vec::<String>::take(&mut In(&bytes));
            let _other = Vec::<(u64, i32)>::take(&mut In(&bytes));
        }
    }

    #[test]
    fn what_is_no_number_of_64_bits_is_refused() {
        assert!(u64::take(&mut In(&[0xff; 10])).is_err());
        assert!(u64::take(&mut In(&[0x80])).is_err());
        assert!(u8::take(&mut In(&[0x80, 0x02])).is_err());
        assert!(Vec::<u8>::take(&mut In(&[0xff, 0xff, 0x7f])).is_err());
    }
}
