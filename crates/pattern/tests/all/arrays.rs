//! Parts of arrays: each equals what the definitions of HPF, MPI and Vesta say, element by element.

use crate::model::config;
use proptest::prelude::*;
use shoal_pattern::{ArrayError, BlockAxis, Dealing, DealtAxis, Pattern, VestaView, hpf, subarray, vesta};

/// Offsets of every byte of the elements, in the given order.
fn bytes_of(elements: impl IntoIterator<Item = u64>, size: u64) -> Vec<i64> {
    elements
        .into_iter()
        .flat_map(|element| element * size..(element + 1) * size)
        .map(|byte| byte as i64)
        .collect()
}

fn bytes(pattern: &Pattern) -> Vec<i64> {
    pattern.regions().flat_map(|region| region.offset..region.end()).collect()
}

/// Every index of an array, the last axis fastest.
fn indices(extents: &[u64]) -> Vec<Vec<u64>> {
    let Some((first, inner)) = extents.split_first() else { return vec![Vec::new()] };
    let put = |index: u64| indices(inner).into_iter().map(move |rest| [vec![index], rest].concat());
    (0..*first).flat_map(put).collect()
}

fn element(index: &[u64], extents: &[u64]) -> u64 {
    index.iter().zip(extents).fold(0, |element, (index, extent)| element * extent + index)
}

/// HPF 1.1: the process that owns an index.
fn owns(axis: &DealtAxis, index: u64) -> bool {
    match axis.dealing {
        Dealing::Whole => true,
        Dealing::Block => index / axis.extent.div_ceil(axis.processes) == axis.process,
        Dealing::Cyclic(k) => index / k % axis.processes == axis.process,
    }
}

fn axes() -> impl Strategy<Value = Vec<DealtAxis>> {
    let dealing =
        prop_oneof![Just(Dealing::Whole), Just(Dealing::Block), (1..5_u64).prop_map(Dealing::Cyclic)];
    let axis = (0..13_u64, dealing, 1..5_u64, 0..5_u64).prop_map(|(extent, dealing, processes, process)| {
        DealtAxis { extent, dealing, processes, process: process % processes }
    });
    prop::collection::vec(axis, 1..4)
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn a_dealt_array_has_the_elements_that_hpf_says(axes in axes(), size in 1..5_u64) {
        let extents: Vec<u64> = axes.iter().map(|axis| axis.extent).collect();
        let own = |index: &Vec<u64>| axes.iter().zip(index).all(|(axis, index)| owns(axis, *index));
        let meant = indices(&extents).into_iter().filter(own).map(|index| element(&index, &extents));
        prop_assert_eq!(bytes(&hpf(size, &axes).unwrap()), bytes_of(meant, size));
    }

    #[test]
    fn a_block_of_an_array_has_its_elements(
        parts in prop::collection::vec((0..8_u64, 0..6_u64, 0..4_u64), 1..4), size in 1..5_u64,
    ) {
        let axis = |(start, count, more)| BlockAxis { extent: start + count + more, start, count };
        let axes: Vec<BlockAxis> = parts.into_iter().map(axis).collect();
        let extents: Vec<u64> = axes.iter().map(|axis| axis.extent).collect();
        let own = |index: &Vec<u64>| {
            axes.iter().zip(index).all(|(axis, index)| (axis.start..axis.start + axis.count).contains(index))
        };
        let meant = indices(&extents).into_iter().filter(own).map(|index| element(&index, &extents));
        prop_assert_eq!(bytes(&subarray(size, &axes).unwrap()), bytes_of(meant, size));
    }

    #[test]
    fn a_vesta_view_goes_over_its_blocks_and_down_each_cell(
        (cells, rows) in (1..12_u64, 1..12_u64), (rows_block, rows_parts) in (1..5_u64, 1..4_u64),
        (cells_block, cells_parts) in (1..5_u64, 1..4_u64), (down, across) in (0..4_u64, 0..4_u64),
        record_bytes in 1..5_u64,
    ) {
        let view = VestaView { record_bytes, cells, rows, rows_block, rows_parts, cells_block, cells_parts };
        let (down, across) = (down % rows_parts, across % cells_parts);
        let mut meant = Vec::new();
        for top in (0..rows).step_by(rows_block as usize).filter(|row| row / rows_block % rows_parts == down) {
            for cell in (0..cells).filter(|cell| cell / cells_block % cells_parts == across) {
                meant.extend((top..rows.min(top + rows_block)).map(|row| row * cells + cell));
            }
        }
        prop_assert_eq!(bytes(&vesta(&view, down, across).unwrap()), bytes_of(meant, record_bytes));
    }
}

#[test]
fn what_divides_evenly_is_a_nest() {
    let axis =
        |extent, processes, process| DealtAxis { extent, dealing: Dealing::Cyclic(4), processes, process };
    let part = hpf(8, &[axis(1024, 4, 1), axis(4096, 8, 7)]).unwrap();
    assert_eq!(
        part.to_string(),
        "32 B x 128 every 256 B x 4 every 32,768 B x 64 every 524,288 B from 131,296"
    );
    let block = subarray(8, &[BlockAxis { extent: 100, start: 10, count: 20 }; 3]).unwrap();
    assert_eq!(block.to_string(), "160 B x 20 every 800 B x 20 every 80,000 B from 808,080");
}

#[test]
fn errors_name_the_argument_and_the_axis() {
    let axis = DealtAxis { extent: 10, dealing: Dealing::Block, processes: 4, process: 3 };
    let words = |error: Result<Pattern, ArrayError>| error.unwrap_err().to_string();
    assert_eq!(words(hpf(0, &[axis])), "element_bytes is 0: an element has at least one byte");
    assert_eq!(words(hpf(8, &[])), "axes: 0, where 1 to 8 are possible");
    assert_eq!(words(hpf(8, &[axis; 9])), "axes: 9, where 1 to 8 are possible");
    let none = DealtAxis { processes: 0, ..axis };
    assert_eq!(words(hpf(8, &[axis, none])), "processes of axis 1 is 0");
    let absent = DealtAxis { process: 4, ..axis };
    assert_eq!(words(hpf(8, &[absent])), "process of axis 0 is 4, and there are 4");
    let cyclic = DealtAxis { dealing: Dealing::Cyclic(0), ..axis };
    assert_eq!(words(hpf(8, &[axis, cyclic])), "k of CYCLIC(k) of axis 1 is 0");
    let long = DealtAxis { extent: 1 << 40, ..axis };
    assert_eq!(
        words(hpf(8, &[long, axis, long])),
        "extent: the array has more bytes than a file can have, from axis 0 on"
    );
    let block = BlockAxis { extent: 10, start: 8, count: 3 };
    assert_eq!(words(subarray(8, &[block])), "start and count of axis 0 are 8 and 3, and its extent is 10");
    let view = VestaView {
        record_bytes: 8,
        cells: 4,
        rows: 9,
        rows_block: 2,
        rows_parts: 2,
        cells_block: 1,
        cells_parts: 0,
    };
    assert_eq!(words(vesta(&view, 0, 0)), "cells_parts of axis 1 is 0");
    let view = VestaView { cells_parts: 2, ..view };
    assert_eq!(words(vesta(&view, 0, 2)), "across of axis 1 is 2, and there are 2");
    assert_eq!(
        words(vesta(&VestaView { record_bytes: 0, ..view }, 0, 0)),
        "record_bytes is 0: an element has at least one byte"
    );
}

#[test]
fn the_largest_arguments_do_not_overflow() {
    let axis = DealtAxis {
        extent: u64::MAX,
        dealing: Dealing::Cyclic(u64::MAX),
        processes: u64::MAX,
        process: u64::MAX - 1,
    };
    assert_eq!(hpf(1, &[axis]), Err(ArrayError::TooLarge { axis: 0 }));
    let axis = DealtAxis { extent: i64::MAX as u64, ..axis };
    assert_eq!(hpf(1, &[axis]), Ok(Pattern::EMPTY));
    let first = hpf(1, &[DealtAxis { process: 0, ..axis }]).unwrap();
    assert_eq!(first, Pattern::contiguous(0, i64::MAX as u64).unwrap());
    let none = DealtAxis { extent: 0, dealing: Dealing::Block, processes: 3, process: 0 };
    assert_eq!(hpf(1, &[none]), Ok(Pattern::EMPTY));
}
