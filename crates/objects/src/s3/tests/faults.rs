//! Tests in processes of their own.

use super::*;

#[test]
#[should_panic(expected = "no test")]
fn a_test_that_is_not_there_is_not_passed_in_a_process_of_its_own() {
    run_again("faults::no_such_test", 0, &[]);
}
