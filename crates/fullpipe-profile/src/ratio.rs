//! How far two values are apart.

/// Largest ratio of two values that count as the same.
pub const SAME_RATIO: f64 = 1.01;

/// Returns the larger of two positive numbers relative to the smaller one.
pub fn ratio(a: f64, b: f64) -> f64 {
    if a == b { 1.0 } else { (a / b).max(b / a) }
}
