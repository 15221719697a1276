//! A file system of any kind, as one type: code that is generic over file systems is compiled once for
//! all kinds.
//!
//! Transforms lie over many kinds of file systems: a local directory, several backends, a ShoalFS, the
//! part of one that a directory's layout covers. A copy of their code for each kind made half of the
//! program's build. [`AnyVfs`] keeps its file system as a trait object. Each call goes by a table of
//! functions, and its future lies in a box: some 50 ns beside a system call or a message. So the
//! interfaces to programs do not use it on a ShoalFS or a plain directory, where every call counts;
//! transforms do for the file system below them.
//!
//! A kernel's pages are not kept over it: [`VfsFile::keeps_pages`] needs facts whose type is lost here.
//! The references of a kernel are always counted ([`Vfs::HEARS_REFERENCES`]); a file system that does not
//! count them ignores the calls.

use crate::{
    ForkedFile, HeldLock, Listed, Listing, LockCall, LockOwner, LockRange, NewFile, Opened, OpenedOf,
    RenameFlags, Result, Space, Vfs, VfsFile,
};
use bytes::Bytes;
use shoal_env::Instant;
use shoal_pattern::Pattern;
use shoal_proto::op::XattrName;
use shoal_proto::{Allocation, Attr, Handle, Kind, Name, Owner, Rights, SetAttr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

/// The future of a call, in a box.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
/// Whether the call of a thread was interrupted.
type IsInterrupted = Box<dyn Fn(u32) -> bool>;
/// Receives the attributes of a directory.
type HearDirectory = Box<dyn Fn(Handle, Instant, Option<&Attr>)>;
/// Receives an object.
type HearObject = Box<dyn Fn(Handle)>;

/// A file system of any kind. See the module.
#[derive(Clone)]
pub struct AnyVfs(Rc<dyn VfsObject>);

/// An open file of a file system of any kind.
#[derive(Clone)]
pub struct AnyFile(Rc<dyn FileObject>);

/// A listing of a file system of any kind.
pub struct AnyListing(Box<dyn ListingObject>);

impl AnyVfs {
    /// This file system, as one of any kind.
    pub fn of(vfs: impl Vfs) -> AnyVfs {
        AnyVfs(Rc::new(vfs))
    }
}

impl AnyFile {
    fn of(file: impl VfsFile) -> AnyFile {
        AnyFile(Rc::new(file))
    }
}

/// An opened file whose facts about pages are lost.
fn without_counts<F: VfsFile>(opened: Opened<F, F::PageCounts>) -> OpenedOf<AnyVfs> {
    let Opened { file, size, has_name, counts: _ } = opened;
    Opened { file: AnyFile::of(file), size, has_name, counts: () }
}

/// From a list of methods of a trait: its trait object `$object` with the further methods `$more`, whose code
/// for all implementors is `$of`; and the trait for the type that holds the object, with the methods `$by`.
/// `@&` stands for a reference that lives as long as the call.
macro_rules! as_object {
    (
        $trait:ident as $object:ident, held by $any:ident;
        $(async fn $call:ident($($arg:ident: $(@$ref:tt)? $arg_type:ty),*) -> $result:ty;)*
        $(fn $fact:ident($($fact_arg:ident: $(@$fact_ref:tt)? $fact_type:ty),*) -> $answer:ty;)*
        more { $($more:tt)* }
        of { $($of:tt)* }
        by { $($by:tt)* }
    ) => {
        trait $object {
            $(fn $call<'a>(&'a self $(, $arg: $($ref 'a)? $arg_type)*) -> Boxed<'a, $result>;)*
            $(fn $fact(&self $(, $fact_arg: $($fact_ref)? $fact_type)*) -> $answer;)*
            $($more)*
        }

        impl<T: $trait> $object for T {
            $(fn $call<'a>(&'a self $(, $arg: $($ref 'a)? $arg_type)*) -> Boxed<'a, $result> {
                Box::pin($trait::$call(self $(, $arg)*))
            })*
            $(fn $fact(&self $(, $fact_arg: $($fact_ref)? $fact_type)*) -> $answer {
                $trait::$fact(self $(, $fact_arg)*)
            })*
            $($of)*
        }

        impl $trait for $any {
            $(async fn $call(&self $(, $arg: $($ref)? $arg_type)*) -> $result {
                self.0.$call($($arg),*).await
            })*
            $(fn $fact(&self $(, $fact_arg: $($fact_ref)? $fact_type)*) -> $answer {
                self.0.$fact($($fact_arg),*)
            })*
            $($by)*
        }
    };
}

as_object! {
    VfsFile as FileObject, held by AnyFile;
    async fn flush() -> Result<()>;
    async fn read(offset: u64, len: usize) -> Result<Bytes>;
    async fn write(offset: u64, data: Bytes) -> Result<()>;
    async fn append(data: Bytes) -> Result<u64>;
    async fn fsync() -> Result<()>;
    async fn refresh() -> Result<()>;
    async fn drop_cache() -> Result<()>;
    async fn hold_alone() -> Result<bool>;
    async fn allocate(offset: u64, len: u64, mode: Allocation) -> Result<()>;
    async fn read_pattern(pattern: @& Pattern) -> Result<Bytes>;
    async fn read_pattern_sized(pattern: @& Pattern) -> Result<(Bytes, u64)>;
    async fn write_pattern(pattern: @& Pattern, data: Bytes) -> Result<()>;
    async fn write_durable(offset: u64, data: Bytes) -> Result<()>;
    async fn write_pages(offset: u64, data: Bytes) -> Result<()>;
    async fn lock(call: @& LockCall) -> Result<bool>;
    async fn unlock(owner: LockOwner, range: LockRange) -> Result<()>;
    async fn lock_holder(call: @& LockCall) -> Result<Option<HeldLock>>;
    fn reports_closes() -> bool;
    fn handle() -> Handle;
    fn rights() -> Rights;
    fn has_locks(owner: LockOwner) -> bool;
    fn reads_pages() -> ();
    fn has_forgotten_pages() -> ();
    more {
        fn again(&self) -> AnyFile;
        fn close(self: Rc<Self>) -> Boxed<'static, Result<()>>;
    }
    of {
        fn again(&self) -> AnyFile {
            AnyFile::of(VfsFile::again(self))
        }

        fn close(self: Rc<Self>) -> Boxed<'static, Result<()>> {
            Box::pin(VfsFile::close(Rc::unwrap_or_clone(self)))
        }
    }
    by {
        type PageCounts = ();

        const MAY_REPORT_CLOSES: bool = true;

        fn again(&self) -> AnyFile {
            self.0.again()
        }

        async fn close(self) -> Result<()> {
            self.0.close().await
        }
    }
}

as_object! {
    Vfs as VfsObject, held by AnyVfs;
    async fn lookup(dir: Handle, name: @& Name) -> Result<Attr>;
    async fn getattr(object: Handle) -> Result<Attr>;
    async fn setattr(object: Handle, set: SetAttr) -> Result<Attr>;
    async fn truncate(object: Handle, size: u64, kill_privileges: bool) -> Result<Attr>;
    async fn readlink(object: Handle) -> Result<Bytes>;
    async fn names(dir: Handle) -> Result<Vec<Name>>;
    async fn create_write(dir: Handle, name: @& Name, owner: Owner, data: Bytes) -> Result<Attr>;
    async fn mknod(dir: Handle, name: @& Name, owner: Owner, kind: Kind, device: u64) -> Result<Attr>;
    async fn mkdir(dir: Handle, name: @& Name, owner: Owner) -> Result<Attr>;
    async fn mkforked(dir: Handle, name: @& Name, owner: Owner, file: @& ForkedFile) -> Result<Attr>;
    async fn symlink(dir: Handle, name: @& Name, owner: Owner, target: @& [u8]) -> Result<Attr>;
    async fn link(object: Handle, dir: Handle, name: @& Name) -> Result<Attr>;
    async fn unlink(dir: Handle, name: @& Name) -> Result<()>;
    async fn make_many(entries: @& [(Handle, Name)], owner: Owner) -> Vec<Result<Attr>>;
    async fn create_many(files: Vec<NewFile>, owner: Owner) -> Vec<Result<Attr>>;
    async fn read_many(entries: @& [(Handle, Name, usize)]) -> Vec<Result<(Attr, Option<Bytes>)>>;
    async fn unlink_many(entries: @& [(Handle, Name)]) -> Vec<Result<()>>;
    async fn rmdir(dir: Handle, name: @& Name) -> Result<()>;
    async fn rmforked(dir: Handle, name: @& Name, file: Handle) -> Result<()>;
    async fn rename(from: Handle, from_name: @& Name, to: Handle, to_name: @& Name, flags: RenameFlags) -> Result<()>;
    async fn getxattr(object: Handle, name: @& [u8]) -> Result<Bytes>;
    async fn setxattr(object: Handle, name: @& [u8], value: @& [u8], create: bool, replace: bool) -> Result<()>;
    async fn listxattr(object: Handle) -> Result<Vec<XattrName>>;
    async fn removexattr(object: Handle, name: @& [u8]) -> Result<()>;
    async fn fsync_directory(dir: Handle) -> Result<()>;
    async fn sync_all() -> Result<()>;
    async fn statfs() -> Result<Space>;
    async fn is_of_this_machine() -> Result<Option<bool>>;
    async fn close() -> ();
    async fn walk_path(path: @& [u8], follow_last: bool) -> Result<Attr>;
    async fn walk_inside(path: @& [u8], follow_last: bool) -> Result<Attr>;
    fn outlives_its_process() -> bool;
    fn subfile_servers() -> usize;
    fn has_open(object: Handle) -> bool;
    fn deadline() -> Instant;
    fn place_of(name: @& Name) -> u32;
    fn lists_attributes() -> bool;
    fn lists_ahead() -> bool;
    fn made_without_pages(object: Handle) -> ();
    fn spoil_pages(object: Handle) -> ();
    fn referred(object: Handle) -> ();
    fn forgotten(object: Handle, answers: u64) -> ();
    more {
        fn create<'a>(&'a self, dir: Handle, name: &'a Name, owner: Owner, exclusive: bool, rights: Rights) -> Boxed<'a, Result<(Attr, bool, AnyFile)>>;
        fn open_many<'a>(&'a self, entries: &'a [(Handle, Name)], rights: Rights) -> Boxed<'a, Vec<Result<AnyFile>>>;
        fn open<'a>(&'a self, object: Handle, rights: Rights) -> Boxed<'a, Result<AnyFile>>;
        fn open_past_pages<'a>(&'a self, object: Handle, rights: Rights) -> Boxed<'a, Result<OpenedOf<AnyVfs>>>;
        fn open_pages<'a>(&'a self, object: Handle, rights: Rights) -> Boxed<'a, Result<OpenedOf<AnyVfs>>>;
        fn open_held<'a>(&'a self, object: Handle, rights: Rights) -> Boxed<'a, Result<AnyFile>>;
        fn open_name<'a>(&'a self, dir: Handle, name: &'a Name, rights: Rights) -> Boxed<'a, Result<AnyFile>>;
        fn opendir(&self, dir: Handle, patience: Duration) -> AnyListing;
        fn call(&self, thread: u32, work: Boxed<'static, ()>) -> Boxed<'static, ()>;
        fn until<'a>(
            &'a self,
            deadline: Instant,
            work: Pin<&'a mut (dyn Future<Output = ()> + 'a)>,
        ) -> Boxed<'a, ()>;
        fn hear_interrupts(&self, is_interrupted: IsInterrupted);
        fn hear_directories(&self, listener: HearDirectory);
        fn hear_removals(&self, listener: HearObject);
        fn keep_pages(&self, listener: HearObject);
    }
    of {
        fn create<'a>(&'a self, dir: Handle, name: &'a Name, owner: Owner, exclusive: bool, rights: Rights) -> Boxed<'a, Result<(Attr, bool, AnyFile)>> {
            Box::pin(async move { let (attr, is_made, file) = Vfs::create(self, dir, name, owner, exclusive, rights).await?;
            Ok((attr, is_made, AnyFile::of(file))) })
        }

        fn open_many<'a>(&'a self, entries: &'a [(Handle, Name)], rights: Rights) -> Boxed<'a, Vec<Result<AnyFile>>> {
            Box::pin(async move { Vfs::open_many(self, entries, rights).await.into_iter().map(|opened| opened.map(AnyFile::of)).collect() })
        }

        fn open<'a>(&'a self, object: Handle, rights: Rights) -> Boxed<'a, Result<AnyFile>> {
            Box::pin(async move { Ok(AnyFile::of(Vfs::open(self, object, rights).await?)) })
        }

        fn open_past_pages<'a>(&'a self, object: Handle, rights: Rights) -> Boxed<'a, Result<OpenedOf<AnyVfs>>> {
            Box::pin(async move { Ok(without_counts(Vfs::open_past_pages(self, object, rights).await?)) })
        }

        fn open_pages<'a>(&'a self, object: Handle, rights: Rights) -> Boxed<'a, Result<OpenedOf<AnyVfs>>> {
            Box::pin(async move { Ok(without_counts(Vfs::open_pages(self, object, rights).await?)) })
        }

        fn open_held<'a>(&'a self, object: Handle, rights: Rights) -> Boxed<'a, Result<AnyFile>> {
            Box::pin(async move { Ok(AnyFile::of(Vfs::open_held(self, object, rights).await?)) })
        }

        fn open_name<'a>(&'a self, dir: Handle, name: &'a Name, rights: Rights) -> Boxed<'a, Result<AnyFile>> {
            Box::pin(async move { Ok(AnyFile::of(Vfs::open_name(self, dir, name, rights).await?)) })
        }

        fn opendir(&self, dir: Handle, patience: Duration) -> AnyListing {
            AnyListing(Box::new(Vfs::opendir(self, dir, patience)))
        }

        fn call(&self, thread: u32, work: Boxed<'static, ()>) -> Boxed<'static, ()> {
            Box::pin(Vfs::call(self, thread, work))
        }

        fn until<'a>(
            &'a self,
            deadline: Instant,
            work: Pin<&'a mut (dyn Future<Output = ()> + 'a)>,
        ) -> Boxed<'a, ()> {
            Box::pin(Vfs::until(self, deadline, work))
        }

        fn hear_interrupts(&self, is_interrupted: IsInterrupted) {
            Vfs::hear_interrupts(self, is_interrupted);
        }

        fn hear_directories(&self, listener: HearDirectory) {
            Vfs::hear_directories(self, listener);
        }

        fn hear_removals(&self, listener: HearObject) {
            Vfs::hear_removals(self, listener);
        }

        fn keep_pages(&self, listener: HearObject) {
            Vfs::keep_pages(self, listener);
        }
    }
    by {
        type File = AnyFile;
        type Listing = AnyListing;

        const HEARS_REFERENCES: bool = true;

        async fn create(&self, dir: Handle, name: &Name, owner: Owner, exclusive: bool, rights: Rights) -> Result<(Attr, bool, AnyFile)> {
            self.0.create(dir, name, owner, exclusive, rights).await
        }

        async fn open_many(&self, entries: &[(Handle, Name)], rights: Rights) -> Vec<Result<AnyFile>> {
            self.0.open_many(entries, rights).await
        }

        async fn open(&self, object: Handle, rights: Rights) -> Result<AnyFile> {
            self.0.open(object, rights).await
        }

        async fn open_past_pages(&self, object: Handle, rights: Rights) -> Result<OpenedOf<AnyVfs>> {
            self.0.open_past_pages(object, rights).await
        }

        async fn open_pages(&self, object: Handle, rights: Rights) -> Result<OpenedOf<AnyVfs>> {
            self.0.open_pages(object, rights).await
        }

        async fn open_held(&self, object: Handle, rights: Rights) -> Result<AnyFile> {
            self.0.open_held(object, rights).await
        }

        async fn open_name(&self, dir: Handle, name: &Name, rights: Rights) -> Result<AnyFile> {
            self.0.open_name(dir, name, rights).await
        }

        fn opendir(&self, dir: Handle, patience: Duration) -> AnyListing {
            self.0.opendir(dir, patience)
        }

        fn call<F: Future<Output = ()> + Unpin + 'static>(
            &self,
            thread: u32,
            work: F,
        ) -> impl Future<Output = ()> + use<F> + 'static {
            self.0.call(thread, Box::pin(work))
        }

        async fn until<F: Future + Unpin>(&self, deadline: Instant, work: F) -> F::Output {
            let mut done = None;
            {
                let noted = pin!(async { done = Some(work.await) });
                self.0.until(deadline, noted).await;
            }
            done.expect("`until` ends when its work has ended")
        }

        fn hear_interrupts(&self, is_interrupted: impl Fn(u32) -> bool + 'static) {
            self.0.hear_interrupts(Box::new(is_interrupted));
        }

        fn hear_directories(&self, listener: impl Fn(Handle, Instant, Option<&Attr>) + 'static) {
            self.0.hear_directories(Box::new(listener));
        }

        fn hear_removals(&self, listener: impl Fn(Handle) + 'static) {
            self.0.hear_removals(Box::new(listener));
        }

        fn keep_pages(&self, listener: impl Fn(Handle) + 'static) {
            self.0.keep_pages(Box::new(listener));
        }
    }
}

/// [`Listing`] as a trait object.
trait ListingObject {
    fn next(&mut self, plus: bool) -> Boxed<'_, Result<Option<Listed>>>;
    fn seek(&mut self, place: u64);
}

impl<L: Listing> ListingObject for L {
    fn next(&mut self, plus: bool) -> Boxed<'_, Result<Option<Listed>>> {
        Box::pin(Listing::next(self, plus))
    }

    fn seek(&mut self, place: u64) {
        Listing::seek(self, place);
    }
}

impl Listing for AnyListing {
    async fn next(&mut self, plus: bool) -> Result<Option<Listed>> {
        self.0.next(plus).await
    }

    fn seek(&mut self, place: u64) {
        self.0.seek(place);
    }
}
