//! The command that runs a program over file systems without a mount.

use super::Key;
use clap::Args;
use std::ffi::OsString;

/// `shoal run`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal run --over /scratch/me/ckpt=container -- ./model --checkpoint /scratch/me/ckpt/step-000100
          shoal run --over /scratch/me/out=composed -- tar -C /scratch/me/out -xf million-files.tar
          shoal run --over /mnt/demo=shoal://10.0.0.1:7441/demo --key ./key -- python3 train.py /mnt/demo
          shoal run --over /ckpt=s3://bucket/runs/me -- ./model --checkpoint /ckpt/step-000100
          mpirun -np 64 shoal run --over /scratch/me/ckpt=container,index=parallel -- ./model --restart
The program is unchanged, and no mount and no root is needed: a library in the program and its children answers the C
library's calls on paths below DIR. Programs without a C library (static ones) are refused.

With index=parallel the processes of a job open a container for reading together: each of them must open it, and each index log is
read once. Rank and size are those of MPICH, Open MPI or srun, or of SHOAL_GROUP_RANK and SHOAL_GROUP_SIZE; SHOAL_GROUP_JOB names the
job, SHOAL_GROUP_LISTEN the address of rank 0, SHOAL_GROUP_SECONDS the time that ranks wait for each other (10). A process whose
group fails says so with SHOAL_PRELOAD_LOG=1, and reads alone from then on.")]
pub struct Run {
    /// A directory, and what it shows: DIR=container (each file is a container in DIR; also
    /// DIR=container,backends=DIR2:DIR3, and index=original, flatten or parallel), DIR=composed (all
    /// files share one physical file in DIR; also DIR=composed,block=4M,files=2), DIR=plain (DIR itself),
    /// DIR=shoal://HOST:PORT/NAME (a file system) or DIR=s3://BUCKET/PREFIX (containers in a bucket; also
    /// DIR=s3://BUCKET/PREFIX,index=parallel; the AWS_ variables name store and credentials, and what a
    /// program did not close or sync is lost when a signal or _exit ends it). DIR is absolute. May be given
    /// several times.
    #[arg(long, required = true, value_name = "DIR=WHAT")]
    pub over: Vec<String>,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
