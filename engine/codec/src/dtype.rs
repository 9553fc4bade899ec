//! The types of array items.

use std::borrow::Cow;

/// Defines [`Dtype`] from one table: variant, code in the format, name, bytes of an item.
macro_rules! dtypes {
    ($($variant:ident $code:literal $name:literal $itemsize:literal,)*) => {
        /// The type of the items of an array: every dtype of NumPy, PyTorch and JAX.
        ///
        /// Names are those of NumPy and ml_dtypes, else those of PyTorch. Kinds narrower than
        /// a byte take one byte each; packed kinds (`float4_e2m1fn_x2`, `bits1x8`, ...) are
        /// kinds of their own, and a shape counts their bytes.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Dtype {
            $(#[doc = concat!("`", $name, "`, bytes: ", $itemsize, ".")] $variant,)*
            /// Items that Unspool keeps and gives back without knowing what they are:
            /// structured dtypes, `datetime64`, strings of fixed width, `longdouble`, other
            /// byte orders.
            Opaque {
                /// Bytes of an item; zero is allowed.
                itemsize: u64,
                /// A description of the items by the program that saved them, such as the format
                /// string of the buffer protocol. At most 65,535 bytes.
                tag: String,
            },
        }

        impl Dtype {
            /// Every dtype but the opaque ones, in the order of their codes.
            pub const ALL: &'static [Dtype] = &[$(Dtype::$variant,)*];

            /// The number that stands for it in a frame; 0 for opaque items.
            #[must_use]
            pub fn code(&self) -> u16 {
                match self {
                    $(Dtype::$variant => $code,)*
                    Dtype::Opaque { .. } => OPAQUE_CODE,
                }
            }

            /// Bytes of an item.
            #[must_use]
            pub fn itemsize(&self) -> u64 {
                match self {
                    $(Dtype::$variant => $itemsize,)*
                    Dtype::Opaque { itemsize, .. } => *itemsize,
                }
            }

            /// Its name, such as `float32`; opaque items are `opaque16:tag`, with the item size
            /// in bytes. [`Dtype::from_name`] is the inverse.
            #[must_use]
            pub fn name(&self) -> Cow<'_, str> {
                match self {
                    $(Dtype::$variant => Cow::Borrowed($name),)*
                    Dtype::Opaque { itemsize, tag } => format!("opaque{itemsize}:{tag}").into(),
                }
            }

            /// The dtype with this [`name`](Dtype::name), if there is one.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Dtype> {
                match name {
                    $($name => Some(Dtype::$variant),)*
                    _ => opaque_from_name(name),
                }
            }
        }
    };
}

/// The code of opaque items.
pub(crate) const OPAQUE_CODE: u16 = 0;

dtypes! {
    Bool 1 "bool" 1,
    Int8 2 "int8" 1,
    Int16 3 "int16" 2,
    Int32 4 "int32" 4,
    Int64 5 "int64" 8,
    UInt8 6 "uint8" 1,
    UInt16 7 "uint16" 2,
    UInt32 8 "uint32" 4,
    UInt64 9 "uint64" 8,
    Float16 16 "float16" 2,
    BFloat16 17 "bfloat16" 2,
    Float32 18 "float32" 4,
    Float64 19 "float64" 8,
    Complex32 24 "complex32" 4,
    Complex64 25 "complex64" 8,
    Complex128 26 "complex128" 16,
    Float8E3m4 32 "float8_e3m4" 1,
    Float8E4m3 33 "float8_e4m3" 1,
    Float8E4m3b11fnuz 34 "float8_e4m3b11fnuz" 1,
    Float8E4m3fn 35 "float8_e4m3fn" 1,
    Float8E4m3fnuz 36 "float8_e4m3fnuz" 1,
    Float8E5m2 37 "float8_e5m2" 1,
    Float8E5m2fnuz 38 "float8_e5m2fnuz" 1,
    Float8E8m0fnu 39 "float8_e8m0fnu" 1,
    Float6E2m3fn 48 "float6_e2m3fn" 1,
    Float6E3m2fn 49 "float6_e3m2fn" 1,
    Float4E2m1fn 50 "float4_e2m1fn" 1,
    Float4E2m1fnX2 51 "float4_e2m1fn_x2" 1,
    Int1 65 "int1" 1,
    Int2 66 "int2" 1,
    Int3 67 "int3" 1,
    Int4 68 "int4" 1,
    Int5 69 "int5" 1,
    Int6 70 "int6" 1,
    Int7 71 "int7" 1,
    UInt1 81 "uint1" 1,
    UInt2 82 "uint2" 1,
    UInt3 83 "uint3" 1,
    UInt4 84 "uint4" 1,
    UInt5 85 "uint5" 1,
    UInt6 86 "uint6" 1,
    UInt7 87 "uint7" 1,
    Bits1x8 96 "bits1x8" 1,
    Bits2x4 97 "bits2x4" 1,
    Bits4x2 98 "bits4x2" 1,
    Bits8 99 "bits8" 1,
    Bits16 100 "bits16" 2,
    QInt8 112 "qint8" 1,
    QUInt8 113 "quint8" 1,
    QInt32 114 "qint32" 4,
    QUInt4x2 115 "quint4x2" 1,
    QUInt2x4 116 "quint2x4" 1,
}

impl Dtype {
    /// The dtype with this code, if this version knows it; opaque items have no code of theirs.
    pub(crate) fn from_code(code: u16) -> Option<Dtype> {
        let index = Dtype::ALL.binary_search_by_key(&code, Dtype::code).ok()?;
        Some(Dtype::ALL[index].clone())
    }

    /// Whether the items are floating-point or complex numbers with a form for arithmetic: those
    /// that a bound on the error can be given for.
    #[must_use]
    pub fn is_float(&self) -> bool {
        use Dtype::{BFloat16, Complex32, Complex64, Complex128, Float16, Float32, Float64};
        let real = matches!(self, Float16 | BFloat16 | Float32 | Float64);
        real || matches!(self, Complex32 | Complex64 | Complex128)
    }

    /// Values of an item: a complex number has two.
    #[must_use]
    pub fn components(&self) -> u64 {
        use Dtype::{Complex32, Complex64, Complex128};
        if matches!(self, Complex32 | Complex64 | Complex128) { 2 } else { 1 }
    }

    /// The tag of opaque items, empty for all others.
    #[must_use]
    pub fn tag(&self) -> &str {
        match self {
            Dtype::Opaque { tag, .. } => tag,
            _ => "",
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

/// Reads `opaque16:tag`. Only the shortest spelling of the number counts, so that a dtype has
/// one name.
fn opaque_from_name(name: &str) -> Option<Dtype> {
    let (digits, tag) = name.strip_prefix("opaque")?.split_once(':')?;
    let itemsize: u64 = digits.parse().ok()?;
    (itemsize.to_string() == digits).then(|| Dtype::Opaque { itemsize, tag: tag.to_owned() })
}
