// SPDX-License-Identifier: MPL-2.0
//! Outputs with the rows of all pictures of a batch, as suppression in a graph makes them: how many are of which picture is
//! different in each batch, and a column of theirs tells.

use super::{Column, Dim, ModelHints, number, recognise_outputs};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Pool;
use crate::tensor::{Tensor, TensorDesc};

/// Which of a model's outputs has the rows of all pictures of a batch, and which of their elements is the picture's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PictureRows {
    pub output: usize,
    column: usize,
}

impl PictureRows {
    /// `None` for models with none, or whose outputs are not recognised.
    ///
    /// # Errors
    /// `Settings`, where a batch is to have several pictures, and the outputs are of one.
    pub fn find(outputs: &[TensorDesc], hints: &ModelHints, batch: usize) -> Result<Option<Self>> {
        let Ok((format, indices)) = recognise_outputs(outputs, hints) else { return Ok(None) };
        let Some(place) = format.output_of_pictures() else {
            let has_batch = format.outputs.iter().all(|output| output.dims.contains(&Dim::Batch));
            if batch > 1 && !has_batch {
                let what = format!("The outputs of {format} are of one picture, and batch-size is {batch}");
                return Err(Error::new(ErrorKind::Settings, what).remedy("Set batch-size=1 on trtinfer"));
            }
            return Ok(None);
        };
        let before = format.outputs[place].columns.iter().take_while(|&&column| column != Column::Picture);
        let widths = before.map(|column| column.width(&Default::default()).unwrap_or(0));
        Ok(Some(PictureRows { output: indices[place], column: widths.sum() }))
    }

    /// Of that output, on the host, the rows of one picture.
    ///
    /// # Errors
    /// As [`Pool::take`]; `Model` for a tensor without rows.
    pub fn of_picture(&self, tensor: &Tensor, picture: usize, pool: &Pool) -> Result<Tensor> {
        let TensorDesc { name, dtype, dims } = tensor.desc();
        let [.., _, columns] = dims[..] else {
            let what = format!("The model's output {} has no rows, and so no part for each frame", tensor.desc());
            return Err(
                Error::new(ErrorKind::Model, what).remedy("Export the model again; this file contradicts itself")
            );
        };
        let columns = columns as usize;
        let bytes = tensor.bytes().unwrap_or_default();
        let number_of = |row| number(tensor, row * columns + self.column);
        let rows = bytes.len() / (columns * dtype.size()).max(1);
        let filled = (0..rows).take_while(|&row| number_of(row) >= 0.0);
        let own: Vec<usize> = filled.filter(|&row| number_of(row) == picture as f32).collect();
        let mut dims = dims.clone();
        let rows_at = dims.len() - 2;
        dims.0[..rows_at].fill(1);
        dims.0[rows_at] = own.len() as i64;
        let desc = TensorDesc { name: name.clone(), dtype: *dtype, dims };
        Tensor::fill(pool, desc, |to| {
            let size = columns * dtype.size();
            for (to, row) in to.chunks_exact_mut(size).zip(own) {
                to.copy_from_slice(&bytes[row * size..][..size]);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    #[test]
    fn a_picture_gets_its_own_rows() {
        let rows: [[f32; 7]; 6] = [[0., 1.], [2., 2.], [0., 3.], [1., 4.], [-1., 5.], [2., 6.]]
            .map(|[picture, left]| [picture, left, 0., 9., 9., 0., 0.5]);
        let hints = ModelHints { input: Some((64, 64)), chooses_rows: true, ..ModelHints::default() };
        let declared = [TensorDesc::new("n", DType::F32, &[1]), TensorDesc::new("output", DType::F32, &[-1, 7])];
        assert_eq!(PictureRows::find(&declared, &hints, 4), Ok(None), "there is another output");
        let found = PictureRows::find(&declared[1..], &hints, 4).unwrap().unwrap();
        assert_eq!(found, PictureRows { output: 0, column: 0 });
        let pool = Pool::default();
        let own = |dims: &[i64], picture| {
            let all = Tensor::from_slice("output", dims, rows.as_flattened());
            let own = found.of_picture(&all, picture, &pool).unwrap();
            let lefts: Vec<f32> = own.as_slice::<f32>().unwrap().chunks(7).map(|row| row[1]).collect();
            (own.desc().dims.to_string(), lefts)
        };
        // What follows a number below 0 is left over from before.
        for (picture, wanted) in [(0, vec![1., 3.]), (1, vec![4.]), (2, vec![2.]), (3, vec![])] {
            assert_eq!(own(&[6, 7], picture), (format!("{}x7", wanted.len()), wanted.clone()));
            assert_eq!(own(&[1, 1, 6, 7], picture), (format!("1x1x{}x7", wanted.len()), wanted));
        }
        let none = Tensor::from_slice::<f32>("output", &[0, 7], &[]);
        assert_eq!(found.of_picture(&none, 0, &pool).unwrap().desc().dims.to_string(), "0x7");
        let of_one =
            [("boxes", DType::F32, &[-1, 4][..]), ("labels", DType::I64, &[-1]), ("scores", DType::F32, &[-1])]
                .map(|(name, dtype, dims)| TensorDesc::new(name, dtype, dims));
        assert_eq!(PictureRows::find(&of_one, &hints, 1), Ok(None));
        let error = PictureRows::find(&of_one, &hints, 4).unwrap_err().message();
        assert_eq!(
            error,
            "The outputs of torchvision are of one picture, and batch-size is 4. Set batch-size=1 on trtinfer."
        );
        let flat = Tensor::from_slice("output", &[7], &rows[0]);
        assert!(found.of_picture(&flat, 0, &pool).unwrap_err().message().contains("output f32 7 has no rows"));
    }
}
