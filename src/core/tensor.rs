//! Tensors: element type, dimensions, description, and memory that is used again.
//!
//! [`TensorDesc`] has a text form (`images f32 1x3x640x640`) that logs, errors and caps share. [`Tensor`] is a description
//! with its bytes, on the host or on a GPU; they come from a [`Pool`] or a [`DevicePool`](crate::core::memory::DevicePool) and
//! return to it when the last owner lets go. [`Tensors`] are what one piece of work makes, with the fence after which they may
//! be read.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use half::f16;
use smallvec::SmallVec;

use crate::core::cuda::driver::{Fence, Stream};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::memory::{DeviceBlock, HostBlock, MemoryKind, Pool, PooledBuffer};

/// Type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    F32,
    F16,
    U8,
    I8,
    I32,
    I64,
    Bool,
}

impl DType {
    pub const ALL: [DType; 7] = [DType::F32, DType::F16, DType::U8, DType::I8, DType::I32, DType::I64, DType::Bool];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::U8 | DType::I8 | DType::Bool => 1,
            DType::F16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::I64 => 8,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        DType::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| Error::new(ErrorKind::Settings, format!("“{text}” is no element type")))
    }
}

/// A Rust type that tensors hold.
pub trait Element: bytemuck::Pod {
    const DTYPE: DType;
    fn to_f32(self) -> f32;
}

macro_rules! element {
    ($($rust:ty => $dtype:ident, $self:ident $to_f32:expr;)*) => {$(
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
            #[inline(always)]
            fn to_f32($self) -> f32 {
                $to_f32
            }
        }
    )*};
}

element! {
    f32 => F32, self self;
    f16 => F16, self f16::to_f32(self);
    u8 => U8, self self as f32;
    i8 => I8, self self as f32;
    i32 => I32, self self as f32;
    i64 => I64, self self as f32;
}

/// Dimensions of a tensor, outermost first; [`Dims::DYNAMIC`] where the model leaves one open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dims(pub SmallVec<[i64; 6]>);

impl Dims {
    pub const DYNAMIC: i64 = -1;

    pub fn new(dims: &[i64]) -> Self {
        Dims(SmallVec::from_slice(dims))
    }

    pub fn is_static(&self) -> bool {
        self.0.iter().all(|&dim| dim >= 0)
    }

    /// Number of elements; `None` where a dimension is open or the product does not fit.
    pub fn elements(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |product, &dim| product.checked_mul(usize::try_from(dim).ok()?))
    }

    /// Whether a tensor of these dimensions may be given where `wanted` is asked for: same rank, open ones take anything.
    pub fn fits(&self, wanted: &Dims) -> bool {
        self.0.len() == wanted.0.len()
            && self.0.iter().zip(&wanted.0).all(|(have, want)| *want == Dims::DYNAMIC || have == want)
    }
}

impl std::ops::Deref for Dims {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.0
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("scalar");
        }
        for (i, &dim) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "x" };
            match dim {
                Dims::DYNAMIC => write!(f, "{separator}?")?,
                dim => write!(f, "{separator}{dim}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Dims {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "scalar" {
            return Ok(Dims::default());
        }
        text.split('x')
            .map(|dim| match dim {
                "?" => Some(Dims::DYNAMIC),
                dim => dim.parse().ok().filter(|&dim: &i64| dim >= 0),
            })
            .collect::<Option<_>>()
            .map(Dims)
            .ok_or_else(|| Error::new(ErrorKind::Settings, format!("“{text}” are no dimensions like 1x3x640x640")))
    }
}

/// Name, element type and dimensions of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorDesc {
    pub name: String,
    pub dtype: DType,
    pub dims: Dims,
}

impl TensorDesc {
    pub fn new(name: impl Into<String>, dtype: DType, dims: &[i64]) -> Self {
        TensorDesc { name: name.into(), dtype, dims: Dims::new(dims) }
    }

    /// Bytes of the whole tensor; `None` where a dimension is open or the size does not fit.
    pub fn bytes(&self) -> Option<usize> {
        self.dims.elements()?.checked_mul(self.dtype.size())
    }
}

impl fmt::Display for TensorDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.dtype, self.dims)
    }
}

/// A list of descriptions, as errors and `model-info` print it.
pub fn list(descs: &[TensorDesc]) -> String {
    descs.iter().map(TensorDesc::to_string).collect::<Vec<_>>().join(", ")
}

/// A named array. Written once, then only read.
pub struct Tensor {
    desc: TensorDesc,
    storage: Storage,
}

/// Where a tensor's bytes are.
enum Storage {
    Host(HostBlock),
    Device(DeviceBlock),
}

impl Tensor {
    /// Takes host memory of the right size from `pool` and lets `fill` write all of it.
    ///
    /// # Errors
    /// As `fill`, and as [`Pool::take`].
    ///
    /// # Panics
    /// If `desc` has open dimensions, or `pool` is of memory that the host does not see.
    pub fn fill(pool: &Pool, desc: TensorDesc, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Self> {
        let mut block = pool.take(desc.bytes().expect("a tensor has fixed dimensions"))?;
        fill(block.as_mut_bytes().expect("a pool of host memory"))?;
        Ok(Tensor::on_host(desc, HostBlock::new(block)))
    }

    /// A tensor in host memory.
    ///
    /// # Panics
    /// If there are not as many bytes as `desc` says, or it has open dimensions.
    pub fn on_host(desc: TensorDesc, block: HostBlock) -> Self {
        assert!(Some(block.bytes().len()) == desc.bytes());
        Tensor { desc, storage: Storage::Host(block) }
    }

    /// A tensor in a buffer of whatever place, which holds its bytes.
    ///
    /// # Panics
    /// If the buffer is smaller than `desc` says, or `desc` has open dimensions.
    pub fn in_buffer(desc: TensorDesc, buffer: PooledBuffer) -> Self {
        let bytes = desc.bytes().expect("a tensor has fixed dimensions");
        match buffer.place() {
            MemoryKind::Device => Tensor::on_device(desc, DeviceBlock::new(buffer)),
            _ => Tensor::on_host(desc, HostBlock::new(buffer).part(0, bytes)),
        }
    }

    /// A tensor in GPU memory, whose bytes work that is queued is about to write.
    ///
    /// # Panics
    /// If the block is smaller than `desc` says, or `desc` has open dimensions.
    pub fn on_device(desc: TensorDesc, block: DeviceBlock) -> Self {
        assert!(block.bytes() >= desc.bytes().expect("a tensor has fixed dimensions"));
        Tensor { desc, storage: Storage::Device(block) }
    }

    /// A tensor outside any pool, for tests and one-off inputs.
    ///
    /// # Panics
    /// If the number of values is not what `dims` say.
    pub fn from_slice<T: Element>(name: &str, dims: &[i64], values: &[T]) -> Self {
        let desc = TensorDesc::new(name, T::DTYPE, dims);
        let copy = |bytes: &mut [u8]| {
            bytes.copy_from_slice(bytemuck::cast_slice(values));
            Ok(())
        };
        Tensor::fill(&Pool::default(), desc, copy).expect("there is no limit")
    }

    pub fn desc(&self) -> &TensorDesc {
        &self.desc
    }

    /// The bytes, if they are on the host.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.host().map(HostBlock::bytes)
    }

    /// The elements, if they are on the host and `T` is their type.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        self.bytes().filter(|_| T::DTYPE == self.desc.dtype).map(bytemuck::cast_slice)
    }

    /// The memory, if it is on the host.
    pub fn host(&self) -> Option<&HostBlock> {
        match &self.storage {
            Storage::Host(block) => Some(block),
            Storage::Device(_) => None,
        }
    }

    /// The memory, if it is on a GPU. To be read behind the fence that travels with the tensor.
    pub fn device(&self) -> Option<&DeviceBlock> {
        match &self.storage {
            Storage::Host(..) => None,
            Storage::Device(block) => Some(block),
        }
    }

    /// One row of a batch, as a tensor of its own in the same memory.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> Tensor {
        let mut desc = self.desc.clone();
        let rows = usize::try_from(std::mem::replace(&mut desc.dims.0[0], 1)).expect("fixed dimensions");
        assert!(row < rows);
        let bytes = desc.bytes().expect("fixed dimensions");
        let storage = match &self.storage {
            Storage::Host(block) => Storage::Host(block.part(row * bytes, bytes)),
            Storage::Device(block) => Storage::Device(block.part(row * bytes, bytes)),
        };
        Tensor { desc, storage }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.device().is_some() { "on the GPU" } else { "on the host" };
        write!(f, "Tensor({} {place})", self.desc)
    }
}

/// Tensors that were made together.
///
/// Those on a GPU are written by work that is still queued when this is made. Who reads them makes its own stream wait for
/// [`Tensors::ready`]; the host waits only when they are dropped before that, so that nothing returns to a pool, and no frame
/// to its decoder, while the GPU still uses it.
#[derive(Debug)]
pub struct Tensors {
    list: Vec<Tensor>,
    ready: Option<Fence>,
    /// Where that work was queued, if others may queue there what is done with them.
    stream: Option<Arc<Stream>>,
    /// What that work reads.
    _source: Option<Arc<Tensors>>,
}

impl Tensors {
    /// `ready` is passed once the work that writes them is done; `None` where they are there already. That work reads
    /// `source`, which is kept as long as these are.
    pub fn new(list: Vec<Tensor>, ready: Option<Fence>, source: Option<Arc<Tensors>>) -> Self {
        Tensors { list, ready, stream: None, _source: source }
    }

    /// Says where the work that writes them was queued, for who wants to queue there what is done with them. It then needs no
    /// stream that waits: a GPU takes work from few queues at once, and one that waits holds up others. With 16 streams and one
    /// model that cost a tenth of the frames.
    pub fn on(mut self, stream: Arc<Stream>) -> Self {
        self.stream = Some(stream);
        self
    }

    pub fn stream(&self) -> Option<&Arc<Stream>> {
        self.stream.as_ref()
    }

    pub fn ready(&self) -> Option<&Fence> {
        self.ready.as_ref()
    }

    /// Waits on the host until they are there.
    ///
    /// # Errors
    /// `Run`, where the GPU failed.
    pub fn wait(&self) -> Result<()> {
        self.ready.as_ref().map_or(Ok(()), Fence::wait)
    }

    /// The same, and returns them.
    ///
    /// # Errors
    /// As [`Tensors::wait`].
    pub fn into_ready(mut self) -> Result<Vec<Tensor>> {
        self.wait()?;
        Ok(std::mem::take(&mut self.list))
    }
}

impl std::ops::Deref for Tensors {
    type Target = [Tensor];

    fn deref(&self) -> &[Tensor] {
        &self.list
    }
}

impl Drop for Tensors {
    fn drop(&mut self) {
        // An error of the GPU is told by whoever waits for results; here nobody does.
        if let Some(ready) = &self.ready {
            let _ = ready.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_share_the_memory_of_their_batch() {
        let batch = Tensor::from_slice("t", &[3, 2], &[1i64, 2, 3, 4, 5, 6]);
        let rows: Vec<Tensor> = (0..3).map(|row| batch.row(row)).collect();
        drop(batch);
        let seen: Vec<_> = rows.iter().map(|row| (row.desc().to_string(), row.as_slice::<i64>().unwrap())).collect();
        assert_eq!(seen, [[1, 2], [3, 4], [5, 6]].iter().map(|row| ("t i64 1x2".into(), &row[..])).collect::<Vec<_>>());
        assert_eq!(rows[2].row(0).as_slice::<i64>().unwrap(), [5, 6]);
    }

    #[test]
    fn text_forms_round_trip() {
        for text in ["1x3x640x640", "?x3x?x?", "scalar", "0x6"] {
            assert_eq!(text.parse::<Dims>().unwrap().to_string(), text);
        }
        for text in ["", "1x", "x1", "-1x3", "1×3", "axb"] {
            assert!(text.parse::<Dims>().is_err(), "{text}");
        }
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
        }
    }

    #[test]
    fn open_dimensions_take_anything() {
        let wanted: Dims = "?x3x?x?".parse().unwrap();
        assert!("1x3x64x32".parse::<Dims>().unwrap().fits(&wanted));
        assert!(!"1x4x64x32".parse::<Dims>().unwrap().fits(&wanted));
        assert!(!"3x64x32".parse::<Dims>().unwrap().fits(&wanted));
    }

    #[test]
    fn elements_are_typed() {
        let tensor = Tensor::from_slice("t", &[2], &[1i64, 2]);
        assert_eq!(tensor.as_slice::<i64>(), Some(&[1, 2][..]));
        assert_eq!(tensor.as_slice::<f32>(), None);
        assert_eq!(tensor.desc().to_string(), "t i64 2");
    }
}
