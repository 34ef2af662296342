//! What a SIMD register does with numbers of either precision, whatever the instruction set.

use pulp::Simd;

/// Numbers that registers of every instruction set hold.
pub trait Lane: Copy + 'static {
    /// A register of the instruction set `S`.
    type Vector<S: Simd>: Copy;
    /// The whole registers of a slice.
    fn vectors<S: Simd>(values: &[Self]) -> &[Self::Vector<S>];
    /// As [`vectors`](Lane::vectors), to write to.
    fn vectors_mut<S: Simd>(values: &mut [Self]) -> &mut [Self::Vector<S>];
    /// A slice shorter than a register, filled up with zeros.
    fn load_part<S: Simd>(simd: S, values: &[Self]) -> Self::Vector<S>;
    /// The first lanes into a slice shorter than a register.
    fn store_part<S: Simd>(simd: S, values: &mut [Self], vector: Self::Vector<S>);
    /// The same number in every lane.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;
    /// a + b in every lane.
    fn vector_sum<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// The larger of a and b in every lane.
    fn vector_max<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// a · b + c in every lane.
    fn multiply_add<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// The sum of the lanes, in a fixed order.
    fn lane_sum<S: Simd>(simd: S, vector: Self::Vector<S>) -> Self;
}

macro_rules! lane {
    ($real:ty, $vector:ident: $read:ident, $write:ident, $load:ident, $store:ident, $splat:ident, $add:ident, $max:ident,
     $fma:ident, $total:ident) => {
        impl Lane for $real {
            type Vector<S: Simd> = S::$vector;
            #[inline(always)]
            fn vectors<S: Simd>(values: &[Self]) -> &[S::$vector] {
                S::$read(values).0
            }
            #[inline(always)]
            fn vectors_mut<S: Simd>(values: &mut [Self]) -> &mut [S::$vector] {
                S::$write(values).0
            }
            #[inline(always)]
            fn load_part<S: Simd>(simd: S, values: &[Self]) -> S::$vector {
                simd.$load(values)
            }
            #[inline(always)]
            fn store_part<S: Simd>(simd: S, values: &mut [Self], vector: S::$vector) {
                simd.$store(values, vector);
            }
            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: Self) -> S::$vector {
                simd.$splat(value)
            }
            #[inline(always)]
            fn vector_sum<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
            }
            #[inline(always)]
            fn vector_max<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$max(a, b)
            }
            #[inline(always)]
            fn multiply_add<S: Simd>(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$fma(a, b, c)
            }
            #[inline(always)]
            fn lane_sum<S: Simd>(simd: S, vector: S::$vector) -> Self {
                simd.$total(vector)
            }
        }
    };
}

lane!(f32, f32s: as_simd_f32s, as_mut_simd_f32s, partial_load_f32s, partial_store_f32s, splat_f32s, add_f32s,
      max_f32s, mul_add_e_f32s, reduce_sum_f32s);
lane!(f64, f64s: as_simd_f64s, as_mut_simd_f64s, partial_load_f64s, partial_store_f64s, splat_f64s, add_f64s,
      max_f64s, mul_add_e_f64s, reduce_sum_f64s);
