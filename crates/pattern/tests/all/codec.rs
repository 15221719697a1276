//! The codec: decoding inverts encoding, and hostile input is refused before it costs anything.

use proptest::prelude::*;
use shoal_pattern::codec::{Codec, DecodeError, Reader, Writer};

#[test]
fn every_kind_of_value_comes_back() {
    let mut writer = Writer::with_capacity(64);
    writer.put_u8(1);
    writer.put_u16(0x0203);
    writer.put_u32(4);
    writer.put_u64(5);
    writer.put_u128(6);
    writer.put_i32(-7);
    writer.put_i64(i64::MIN);
    writer.put_bool(true);
    writer.put_bytes(b"eight");
    writer.put_str("nïne");
    writer.put_raw(&[10, 11]);
    writer.put_list(&[1_u16, 2, 3]);
    writer.put(&Some(12_u8));
    writer.put(&(None::<u8>, [1_u8, 2]));
    let bytes = writer.into_vec();
    assert_eq!(bytes[1..3], [3, 2], "little endian");

    let mut reader = Reader::new(&bytes);
    assert_eq!(reader.peek_u8(), Ok(1));
    assert_eq!(reader.get_u8(), Ok(1));
    assert_eq!(reader.get_u16(), Ok(0x0203));
    assert_eq!(reader.get_u32(), Ok(4));
    assert_eq!(reader.get_u64(), Ok(5));
    assert_eq!(reader.get_u128(), Ok(6));
    assert_eq!(reader.get_i32(), Ok(-7));
    assert_eq!(reader.get_i64(), Ok(i64::MIN));
    assert_eq!(reader.get_bool(), Ok(true));
    assert_eq!(reader.get_bytes(5), Ok(&b"eight"[..]));
    assert_eq!(reader.get_str(5), Ok("nïne"));
    assert_eq!(reader.get_raw(2), Ok(&[10, 11][..]));
    assert_eq!(reader.get_list::<u16>(3, 2), Ok(vec![1, 2, 3]));
    assert_eq!(reader.get(), Ok(Some(12_u8)));
    assert_eq!(reader.finish(), Err(DecodeError::Trailing));
    assert_eq!(reader.get(), Ok((None::<u8>, [1_u8, 2])));
    assert_eq!((reader.position(), reader.remaining(), reader.is_empty()), (bytes.len(), 0, true));
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn lengths_and_counts_are_checked_before_they_cost_anything() {
    let limit = |value, limit| DecodeError::Limit { what: "a byte string's length", value, limit };
    let claims = u32::MAX.to_le_bytes();
    assert_eq!(Reader::new(&claims).get_bytes(100), Err(limit(u32::MAX.into(), 100)));
    assert_eq!(Reader::new(&claims).get_bytes(usize::MAX), Err(DecodeError::Truncated));
    assert_eq!(Reader::new(&claims).get_count(usize::MAX, 0), Err(DecodeError::Truncated));
    let mut writer = Writer::new();
    writer.put_count(3);
    writer.put_raw(&[0; 11]);
    assert_eq!(Reader::new(writer.as_slice()).get_count(3, 4), Err(DecodeError::Truncated));
    assert_eq!(Reader::new(writer.as_slice()).get_count(3, 3), Ok(3));
    let above = DecodeError::Limit { what: "a count", value: 3, limit: 2 };
    assert_eq!(Reader::new(writer.as_slice()).get_count(2, 1), Err(above));
    assert_eq!(above.to_string(), "a count is 3, above its limit of 2");
}

#[test]
fn a_value_has_one_encoding() {
    let padded = [[0x80, 0x00].as_slice(), &[0xff, 0x80, 0x00]];
    for bytes in padded {
        assert_eq!(Reader::new(bytes).get_varint(), Err(DecodeError::Invalid("varint")));
    }
    let too_large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
    assert_eq!(Reader::new(&too_large).get_varint(), Err(DecodeError::Invalid("varint")));
    let too_long = [0x81; 11];
    assert_eq!(Reader::new(&too_long).get_varint(), Err(DecodeError::Invalid("varint")));
    assert_eq!(Reader::new(&[2]).get_bool(), Err(DecodeError::Invalid("bool")));
    assert_eq!(Option::<u8>::from_bytes(&[7, 1]), Err(DecodeError::Invalid("bool")));
    assert_eq!(Reader::new(&[1, 0, 0, 0, 0xff]).get_str(9), Err(DecodeError::Invalid("UTF-8 string")));
}

#[test]
fn a_frame_cannot_be_left() {
    let mut reader = Reader::new(&[1, 2, 3]);
    let mut frame = reader.get_frame(2).unwrap();
    assert_eq!(frame.get_u16(), Ok(0x0201));
    assert_eq!(frame.get_u8(), Err(DecodeError::Truncated));
    assert_eq!(reader.clone().get_rest(), [3]);
    assert!(reader.get_frame(2).is_err());
}

#[test]
fn a_length_known_later_is_written_over_its_place() {
    let mut writer = Writer::from_vec(vec![9]);
    let at = writer.hold_u32();
    writer.put_raw(b"abc");
    writer.patch_u32(at, 3);
    assert_eq!(Reader::new(&writer.as_slice()[1..]).get_bytes(3), Ok(&b"abc"[..]));
    assert_eq!(writer.len(), 8);
    writer.truncate(1);
    assert_eq!(writer.as_slice(), [9]);
    writer.clear();
    assert!(writer.is_empty());
}

#[test]
fn errors_read_as_sentences() {
    assert_eq!(DecodeError::Truncated.to_string(), "the input ends inside a value");
    assert_eq!(DecodeError::Invalid("bool").to_string(), "not a valid bool");
    assert_eq!(DecodeError::Trailing.to_string(), "bytes are left after the value");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn numbers_come_back_from_varints(value in any::<u64>(), shift in 0..64_u32) {
        let value = value >> shift;
        let mut writer = Writer::new();
        writer.put_varint(value);
        writer.put_zigzag(value as i64);
        writer.put_zigzag((value as i64).wrapping_neg());
        let mut reader = Reader::new(writer.as_slice());
        prop_assert_eq!(reader.get_varint(), Ok(value));
        prop_assert_eq!(reader.get_zigzag(), Ok(value as i64));
        prop_assert_eq!(reader.get_zigzag(), Ok((value as i64).wrapping_neg()));
        prop_assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn a_varint_that_is_read_is_the_one_that_is_written(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
        let mut reader = Reader::new(&bytes);
        if let Ok(value) = reader.get_varint() {
            let mut writer = Writer::new();
            writer.put_varint(value);
            prop_assert_eq!(writer.as_slice(), &bytes[..reader.position()]);
        }
    }

    #[test]
    fn a_list_is_never_larger_than_its_input(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let list = Reader::new(&bytes).get_list::<u64>(usize::MAX, 8);
        prop_assert!(list.is_err() || list.is_ok_and(|items| items.capacity() * 8 <= bytes.len() + 64));
    }
}

#[test]
fn lists_large_in_memory_and_small_on_the_wire_share_one_room() {
    /// One byte on the wire, four KiB in memory.
    #[derive(Debug)]
    struct Large(#[expect(dead_code, reason = "only its size matters")] [u64; 512]);
    impl Codec for Large {
        fn encode(&self, writer: &mut Writer) {
            writer.put_u8(0);
        }
        fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
            reader.get_u8().map(|_| Large([0; 512]))
        }
    }
    let mut writer = Writer::new();
    for _ in 0..2 {
        writer.put_list(&[const { Large([0; 512]) }; 100]);
    }
    let mut reader = Reader::new(writer.as_slice());
    assert_eq!(reader.get_list::<Large>(100, 1).unwrap().len(), 100);
    assert!(matches!(reader.get_list::<Large>(100, 1), Err(DecodeError::Limit { .. })));
}
