# SPDX-License-Identifier: MPL-2.0
"""Names and types of options, for editors and type checkers. The library checks names and values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, Mapping, Sequence, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

Path: TypeAlias = "Union[str, os.PathLike[str]]"
Size: TypeAlias = "Union[tuple[int, int], int, str]"
Backend: TypeAlias = 'Literal["auto", "tensorrt", "openvino", "onnxruntime", "rten", "kserve", "cpu"]'


class ModelOptions(TypedDict, total=False):
    """How a model runs, besides what Detector and Session name themselves."""

    allow_host_code: bool | None
    cuda_device_id: int | None
    cuda_graph: Literal["auto", "on", "off"] | None
    dla_core: int | None
    engine_build: Literal["auto", "never"] | None
    engine_cache: Path | None
    execution_providers: str | Sequence[str] | None
    frames: int | None
    verify: Literal["auto", "always", "off"] | None
    verify_every: int | None
    input_values: Mapping[str, Path] | str | None
    int8_calibration_cache: Path | None
    max_input_width: int | None
    openvino_device: str | None
    openvino_library: Path | None
    optimization_level: int | None
    ort_library: Path | None
    precision: str | None
    request_timeout: int | None
    shared_memory: Literal["auto", "off", "on", "cuda"] | None
    threads: int | None
    trt_library: Path | None
    workspace_mib: int | None


class DetectorOptions(ModelOptions, total=False):
    """And how images become the model's input, and its outputs objects."""

    background_class: str | None
    beam_width: int | None
    chroma_sampling: str | None
    class_agnostic: bool | None
    class_scores: str | None
    class_thresholds: Mapping[str, float] | str | None
    frame_step: int | None
    interval: int | None
    layout: str | None
    layout_file: Path | None
    map_threshold: float | None
    mask_output: str | None
    max_detections: int | None
    mean: float | Sequence[float] | str | None
    pad_value: int | None
    resize: Literal["auto", "letterbox", "letterbox-top-left", "stretch", "center-crop"] | None
    scale: float | None
    shortest_edge: int | None
    std: float | Sequence[float] | str | None
    tensor_colors: Literal["auto", "rgb", "bgr", "gray"] | None
    top_k: int | None
    unclip_ratio: float | None
    upload: str | None
    use_dilation: bool | None


class NamedOptions(TypedDict, total=False):
    """Those that Detector names."""

    backend: Backend | None
    batch_size: int | None
    classes: str | Sequence[str | int] | None
    input_size: Size | None
    iou_threshold: float | None
    label_file: Path | None
    score_threshold: float | None


class AllOptions(DetectorOptions, NamedOptions, total=False):
    """All that detect() takes for its model."""


class TrackerOptions(TypedDict, total=False):
    """Of Tracker, besides its name and fps."""

    appearance_thresh: float | None
    aw_param: float | None
    delta_t: int | None
    det_thresh: float | None
    dlo_boost_coef: float | None
    fuse_score: bool | None
    inertia: float | None
    iou_thresh: float | None
    lambda_emb: float | None
    lambda_iou: float | None
    lambda_mhd: float | None
    lambda_shape: float | None
    lost_after: int | None
    low_thresh: float | None
    match_thresh: float | None
    min_hits: int | None
    per_class: bool | None
    proximity_thresh: float | None
    reassociate: bool | None
    track_thresh: float | None
    use_byte: bool | None
    use_dlo_boost: bool | None
    use_duo_boost: bool | None
    use_rich_s: bool | None
    use_sb: bool | None
    use_vt: bool | None
    w_association_emb: float | None


# What makes pictures of images and objects of outputs, which a Session does not.
OF_DETECTOR = AllOptions.__optional_keys__ - ModelOptions.__optional_keys__ - {"backend", "batch_size", "input_size"}
OF_TRACKER = TrackerOptions.__optional_keys__ | {"fps"}
# Files and folders.
PATHS = {"engine_cache", "int8_calibration_cache", "label_file", "layout_file", "openvino_library", "ort_library", "trt_library"}
