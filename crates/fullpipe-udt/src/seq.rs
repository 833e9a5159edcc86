//! Sequence numbers: 31 bits on the wire, which wrap (section 2), and 64-bit indexes inside, which never do.
//!
//! The lower 31 bits of an index are the number on the wire. A number that arrives is taken for the index nearest to one that is
//! known, so buffers and loss lists need no arithmetic that wraps.

/// Bits of a sequence number on the wire that hold the number; the highest bit marks a control packet or a range of losses.
pub const SEQ_MASK: u32 = 0x7fff_ffff;

/// Returns the index of the first packet of a direction whose initial sequence number is `isn`. It is at least 2^31, so that
/// every number that is compared with it has an index.
pub fn first_index(isn: u32) -> u64 {
    (1 << 31) | u64::from(isn & SEQ_MASK)
}

/// Returns the number on the wire of an index.
pub fn wire(index: u64) -> u32 {
    (index as u32) & SEQ_MASK
}

/// Returns the index nearest to `near` whose number on the wire is `number`. It is less than 2^30 packets away.
pub fn expand(number: u32, near: u64) -> u64 {
    let ahead = number.wrapping_sub(near as u32) & SEQ_MASK;
    let distance = if ahead > SEQ_MASK / 2 { i64::from(ahead) - (1 << 31) } else { i64::from(ahead) };
    near.saturating_add_signed(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_expand_across_the_wrap_in_both_directions() {
        let last = first_index(SEQ_MASK);
        assert_eq!(wire(last), SEQ_MASK);
        assert_eq!(wire(last + 1), 0);
        assert_eq!(expand(0, last), last + 1);
        assert_eq!(expand(SEQ_MASK, last + 5), last);
        assert_eq!(expand(5, first_index(9)), first_index(5));
    }

    proptest::proptest! {
        #[test]
        fn an_index_near_the_known_one_survives_the_wire(near in 1u64 << 31..1 << 50, away in -(1i64 << 30) + 1..1 << 30) {
            let index = near.saturating_add_signed(away);
            proptest::prop_assert_eq!(expand(wire(index), near), index);
        }
    }
}
