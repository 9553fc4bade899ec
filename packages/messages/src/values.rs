//! The type of the values of a message, as its datatype tells.

use unspool_codec::Dtype;

/// Defines [`Values`] from one table: variant, code, the dtype of the codecs, and the names that
/// MPI has for it in C and Fortran.
macro_rules! values {
    ($($variant:ident $code:literal $dtype:ident [$($name:literal),*],)*) => {
        /// The type of the values of a message.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[repr(u8)]
        pub enum Values {
            /// Bytes whose meaning is not known, or values of several types.
            #[default]
            Bytes = 0,
            $(#[doc = concat!("`", stringify!($dtype), "`.")] $variant = $code,)*
        }

        impl Values {
            /// The type with this code; bytes for a code that is not known.
            #[must_use]
            pub fn from_code(code: u8) -> Values {
                match code {
                    $($code => Values::$variant,)*
                    _ => Values::Bytes,
                }
            }

            /// The type of the predefined datatype with this name, if its values are of one type;
            /// of those whose size the compiler chooses, with this size in bytes.
            #[must_use]
            pub fn of_mpi(name: &str, size: usize) -> Values {
                let found = match name {
                    $($(concat!("MPI_", $name) => Values::$variant,)*)*
                    "MPI_LONG" => Values::Int64,
                    "MPI_UNSIGNED_LONG" => Values::UInt64,
                    _ => return Values::Bytes,
                };
                found.with_size(size)
            }

            /// The dtype of the codecs.
            #[must_use]
            pub fn dtype(self) -> Dtype {
                match self {
                    Values::Bytes => Dtype::UInt8,
                    $(Values::$variant => Dtype::$dtype,)*
                }
            }
        }
    };
}

values! {
    Int8 1 Int8 ["INT8_T", "SIGNED_CHAR", "INTEGER1"],
    Int16 2 Int16 ["INT16_T", "SHORT", "INTEGER2"],
    Int32 3 Int32 ["INT32_T", "INT", "INTEGER", "INTEGER4"],
    Int64 4 Int64 ["INT64_T", "LONG_LONG", "LONG_LONG_INT", "INTEGER8", "AINT", "COUNT", "OFFSET"],
    UInt16 5 UInt16 ["UINT16_T", "UNSIGNED_SHORT"],
    UInt32 6 UInt32 ["UINT32_T", "UNSIGNED"],
    UInt64 7 UInt64 ["UINT64_T", "UNSIGNED_LONG_LONG"],
    Float32 8 Float32 ["FLOAT", "REAL", "REAL4"],
    Float64 9 Float64 ["DOUBLE", "DOUBLE_PRECISION", "REAL8"],
    Complex64 10 Complex64 ["C_COMPLEX", "C_FLOAT_COMPLEX", "COMPLEX", "COMPLEX8",
        "CXX_FLOAT_COMPLEX"],
    Complex128 11 Complex128 ["C_DOUBLE_COMPLEX", "DOUBLE_COMPLEX", "COMPLEX16",
        "CXX_DOUBLE_COMPLEX"],
}

impl Values {
    /// The number that stands for it in a file.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Bytes of one value; a complex number has two of them.
    #[must_use]
    pub fn width(self) -> usize {
        let dtype = self.dtype();
        (dtype.itemsize() / dtype.components()) as usize
    }

    /// Whether a bound on the error can be given.
    #[must_use]
    pub fn is_float(self) -> bool {
        self.dtype().is_float()
    }

    /// The integers that have the width of one value: what differences are made of.
    pub(crate) fn integers(self) -> Dtype {
        match self.width() {
            1 => Dtype::Int8,
            2 => Dtype::Int16,
            4 => Dtype::Int32,
            _ => Dtype::Int64,
        }
    }

    /// The type of this kind with that size, as compilers may make an `INTEGER` 8 bytes wide.
    fn with_size(self, size: usize) -> Values {
        use Values::{
            Bytes, Complex64, Complex128, Float32, Float64, Int32, Int64, UInt32, UInt64,
        };
        if self.dtype().itemsize() as usize == size {
            return self;
        }
        match (self, size) {
            (Int32, 8) => Int64,
            (Int64, 4) => Int32,
            (UInt64, 4) => UInt32,
            (UInt32, 8) => UInt64,
            (Float32, 8) => Float64,
            (Complex64, 16) => Complex128,
            _ => Bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Values;

    #[test]
    fn codes_are_those_of_the_types() {
        for code in 0..=u8::MAX {
            let known = Values::from_code(code);
            assert!(known.code() == code || known == Values::Bytes, "{code}");
        }
        assert_eq!(Values::from_code(11), Values::Complex128);
    }

    #[test]
    fn names_of_mpi_mean_values_of_the_size_that_mpi_says() {
        assert_eq!(Values::of_mpi("MPI_DOUBLE_PRECISION", 8), Values::Float64);
        assert_eq!(Values::of_mpi("MPI_REAL", 8), Values::Float64);
        assert_eq!(Values::of_mpi("MPI_LONG", 4), Values::Int32);
        assert_eq!(Values::of_mpi("MPI_INTEGER", 8), Values::Int64);
        assert_eq!(Values::of_mpi("MPI_LONG_DOUBLE", 16), Values::Bytes);
        assert_eq!(Values::of_mpi("MPI_DOUBLE", 16), Values::Bytes);
        assert_eq!((Values::Complex64.width(), Values::Complex64.is_float()), (4, true));
    }
}
