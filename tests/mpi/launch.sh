# shellcheck shell=bash disable=SC2034,SC2154
# Sourced, after SHOAL and home are set: how jobs are started, with and without `shoal run`.

mpis=(mpich openmpi)
# For tests as root, in a container, with more ranks than processors: Open MPI refuses or warns otherwise.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_plm_rsh_agent=false
# Ranks are started late where few processors run many.
export SHOAL_GROUP_SECONDS=60
limit=300

launcher=()
launch_words() { # MPI RANKS
  case $1 in
    mpich) launcher=(mpiexec.mpich -n "$2") ;;
    openmpi) launcher=(mpirun.openmpi -n "$2") ;;
  esac
}
# Without `shoal run`.
launch() { # MPI RANKS PROGRAM...
  launch_words "$1" "$2"
  timeout --kill-after=10 "$limit" "${launcher[@]}" "${@:3}" </dev/null
}
run_over() { # OVER PROGRAM...
  timeout --kill-after=10 "$limit" "$SHOAL" run --over "$1" --key "$home/data/key" -- "${@:2}"
}
# The words of a job of the MPI at work ($mpi), ended by zeros. Outside: `shoal run` is the launcher's parent; inside: of each rank.
job_words() { # outside|inside OVER RANKS PROGRAM...
  launch_words "$mpi" "$3"
  local run=("$SHOAL" run --over "$2" --key "$home/data/key" --)
  case $1 in
    outside) printf '%s\0' "${run[@]}" "${launcher[@]}" "${@:4}" ;;
    inside) printf '%s\0' "${launcher[@]}" "${run[@]}" "${@:4}" ;;
  esac
}
job() { # outside|inside OVER RANKS PROGRAM...
  local words
  mapfile -d '' -t words < <(job_words "$@")
  timeout --kill-after=10 "$limit" "${words[@]}" </dev/null
}
