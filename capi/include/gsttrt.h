/* SPDX-License-Identifier: MPL-2.0 */
/* gsttrt.h: run a detection model, or detect objects in frames, without a pipeline.
 *
 * The functions are in libgsttrt-1, which needs no GStreamer: cc program.c $(pkg-config --cflags --libs gsttrt-1.0)
 *
 * Errors: a function fails if it returns a GstTrtStatus other than GST_TRT_OK, or the value that it documents for errors:
 * NULL, 0 or NaN. It then has no other effect, and gst_trt_last_error() returns in the same thread what failed and what to do.
 * A session stays usable after any error. NULL, wrong sizes and closed handles are errors too. A panic of this library is
 * caught and returned as GST_TRT_PANIC.
 *
 * Threads: any function may be called from any thread. A session runs one call at a time: a second thread waits for the
 * first. To run in parallel, open several sessions. A session that is closed while it runs is freed when the run is done.
 *
 * Processes: a process that is forked while or after a model was loaded, or could not be, can use no model, which is an error there.
 * Results stay valid.
 *
 * Handles (GstTrtSession, GstTrtResults, GstTrtTensorInfo) are opaque: they are not addresses, and no value is used twice.
 *
 * Later versions add functions, enumeration values, and fields at the end of structures whose first field is struct_size.
 * Programs that were built for this version keep working with them.
 */
#ifndef GSTTRT_H
#define GSTTRT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  GST_TRT_OK = 0,
  GST_TRT_SETTINGS = 1,    /* an option is invalid, or does not match the model */
  GST_TRT_NOT_FOUND = 2,   /* a file does not exist */
  GST_TRT_READ = 3,        /* a file cannot be read */
  GST_TRT_MODEL = 4,       /* a model file is damaged or not supported */
  GST_TRT_LIBRARY = 5,     /* a required library is missing or does not start */
  GST_TRT_RUN = 6,         /* running the model failed */
  GST_TRT_WRONG_TYPE = 7,  /* an argument is NULL, or of another size or type than required */
  GST_TRT_NEGOTIATION = 8, /* a frame cannot be converted to the model's input */
  GST_TRT_PANIC = 9,       /* a bug in this library */
  GST_TRT_DEVICE_LOST = 10 /* this process can use the GPU no more: start the program again */
} GstTrtStatus;

typedef enum {
  GST_TRT_F32 = 0,
  GST_TRT_F16 = 1,
  GST_TRT_U8 = 2,
  GST_TRT_I8 = 3,
  GST_TRT_I32 = 4,
  GST_TRT_I64 = 5,
  GST_TRT_BOOL = 6, /* one byte, 0 or 1 */
  GST_TRT_NO_TYPE = -1
} GstTrtType;

/* Colorimetry of YUV and gray formats; 0 is BT.601, limited range, chroma sited between luma samples. */
enum {
  GST_TRT_BT709 = 1,
  GST_TRT_BT2020 = 2,
  GST_TRT_FULL_RANGE = 4,
  GST_TRT_CHROMA_LEFT = 8, /* the default of H.264; these two are used with the option chroma-sampling=sited */
  GST_TRT_CHROMA_TOP = 16
};

#define GST_TRT_MAX_PLANES 3

/* A frame. Its memory must stay until the function returns. Set all unused bytes to 0. */
typedef struct {
  size_t struct_size; /* sizeof (GstTrtFrame) */
  const char *format; /* GStreamer's name: NV12, P010_10LE, I420, RGB, BGR, RGBA, BGRA, RGBx, BGRx, GRAY8 */
  uint32_t width;     /* in pixels */
  uint32_t height;
  uint32_t color; /* flags, see above */
  uint32_t reserved; /* 0 */
  const void *planes[GST_TRT_MAX_PLANES];
  size_t strides[GST_TRT_MAX_PLANES]; /* bytes from one row to the next */
  size_t bytes[GST_TRT_MAX_PLANES];   /* size of each plane; not used for GPU memory */
} GstTrtFrame;

/* A loaded model with its preprocessing and postprocessing. */
typedef struct GstTrtSession GstTrtSession;

/* An input or output of a model: a contiguous array in row-major order. */
typedef struct GstTrtTensorInfo GstTrtTensorInfo;

/* The objects of a frame. */
typedef struct GstTrtResults GstTrtResults;

/* The text of this thread's last error; "" if there was none. Valid until this thread's next error. */
const char *gst_trt_last_error (void);

/* Loads an ONNX file or a TensorRT engine, whose path may have any bytes. Engines contain code: load only files you trust. For a new
 * ONNX file TensorRT builds an engine, which takes seconds to minutes.
 *
 * options: strings such as "backend=cpu" or "score-threshold=0.5", with NULL after the last; or NULL. Names, ranges and
 * defaults are those of the properties of trtinfer and trtnms, except that by default cuda-device-id is 0, and batch-size what the
 * model fixes, else 1; and of trtpreprocess chroma-sampling, frames, frame-step, mean, pad-value, resize, scale, shortest-edge, std,
 * tensor-colors and upload. With a model that sees clips, the frames of one stream come in their order, and have results where a clip
 * ends that interval lets through; see gst_trt_session_begin_clip(). */
GstTrtStatus gst_trt_session_open (const char *model, const char *const *options, GstTrtSession **session);

/* NULL and closed sessions are ignored. */
void gst_trt_session_close (GstTrtSession *session);

/* "tensorrt", "openvino", "onnxruntime", "rten" or "kserve"; NULL on errors. Valid until the session is closed. */
const char *gst_trt_session_backend (GstTrtSession *session);

/* Why backend=auto did not select TensorRT; NULL if it did, if a backend was named, and on errors. Valid until the session is closed. */
const char *gst_trt_session_reason (GstTrtSession *session);

/* Options without effect: where the model runs, and after the first detection on what the model gives; and after any detection what is
 * wrong with the numbers that the model gave, each once. index counts from 0, and NULL is behind the last one. It does not wait for a run of
 * another thread. Valid until the session is closed. */
const char *gst_trt_session_warning (GstTrtSession *session, size_t index);

/* The same of what is guessed of the model because its file does not say it, such as its layout, after the first detection. */
const char *gst_trt_session_note (GstTrtSession *session, size_t index);

/* Pictures that are run at once, at most: the option batch-size, or as many as the model fixes, or 1. 0 on errors. */
size_t gst_trt_session_batch_size (GstTrtSession *session);

/* The size of the model's input for frames of that width and height: frames with the same one can be run together. */
GstTrtStatus gst_trt_session_input_size (GstTrtSession *session, uint32_t width, uint32_t height, uint32_t *input_width,
                                         uint32_t *input_height);

/* With a model that sees clips, the next frame is the first of a clip: that of another video, or one after a seek. With other models
 * nothing happens. */
GstTrtStatus gst_trt_session_begin_clip (GstTrtSession *session);

/* The number of classes with names, in the model file or the option label-file; 0 on errors too. */
size_t gst_trt_session_class_count (GstTrtSession *session);

/* The name of a class. Valid until the session is closed. NULL if there is none, and on errors. */
const char *gst_trt_session_class_label (GstTrtSession *session, uint32_t class_id);

/* The model's input: the tensor of one picture. The session fills other inputs, such as the picture's size. NULL on errors.
 * Handles of inputs and outputs belong to the session and are closed with it. */
const GstTrtTensorInfo *gst_trt_session_input (GstTrtSession *session);

/* 0 on errors. */
size_t gst_trt_session_output_count (GstTrtSession *session);

/* index counts from 0. Dynamic dimensions have the values of a first run on zeros. NULL on errors. */
const GstTrtTensorInfo *gst_trt_session_output (GstTrtSession *session, size_t index);

/* The name in the model. Valid until the session is closed. NULL on errors. */
const char *gst_trt_tensor_info_name (const GstTrtTensorInfo *tensor);

/* GST_TRT_NO_TYPE on errors. */
GstTrtType gst_trt_tensor_info_type (const GstTrtTensorInfo *tensor);

/* The number of dimensions; 0 on errors too. */
size_t gst_trt_tensor_info_rank (const GstTrtTensorInfo *tensor);

/* The size of a dimension; axis 0 is the outermost. 0 on errors. */
int64_t gst_trt_tensor_info_dim (const GstTrtTensorInfo *tensor, size_t axis);

/* The size of the whole array in bytes. 0 on errors. */
size_t gst_trt_tensor_info_bytes (const GstTrtTensorInfo *tensor);

/* Runs the model on the bytes of its input and writes all outputs, in the model's order. count is
 * gst_trt_session_output_count(), and output_bytes are the outputs' sizes. Memory needs no alignment. Nothing is written on
 * errors.
 *
 * The input may be those of several pictures, one behind the other: they are run in batches, and each output is that of the first
 * picture, then that of the second, and so on. */
GstTrtStatus gst_trt_session_run (GstTrtSession *session, const void *input, size_t bytes, void *const *outputs,
                                  const size_t *output_bytes, size_t count);

/* Finds the objects in a frame, as trtpreprocess ! trtinfer ! trtnms do. The caller frees results with
 * gst_trt_results_free(); on errors it is NULL. Results stay valid after further detections and after the session is closed. */
GstTrtStatus gst_trt_session_detect (GstTrtSession *session, const GstTrtFrame *frame, GstTrtResults **results);

/* The same for a frame in GPU memory: planes are device pointers. They are read in place, after the work enqueued on `stream`
 * so far, and have been read when this returns. GST_TRT_LIBRARY if the model does not run on a GPU. */
GstTrtStatus gst_trt_session_detect_device (GstTrtSession *session, const GstTrtFrame *frame, void *stream,
                                            GstTrtResults **results);

/* The same for count frames, which may differ in format and size, in batches of gst_trt_session_batch_size(): of those that come to
 * the same size of the model's input. Results are in the order of the frames. On errors all are NULL, and the text begins with
 * "frames[3]" where that frame is wrong. */
GstTrtStatus gst_trt_session_detect_batch (GstTrtSession *session, const GstTrtFrame *const *frames, size_t count,
                                           GstTrtResults **results);
GstTrtStatus gst_trt_session_detect_device_batch (GstTrtSession *session, const GstTrtFrame *const *frames, size_t count,
                                                  void *stream, GstTrtResults **results);

/* What a model gives. */
enum {
  GST_TRT_ROTATED_BOXES = 1,
  GST_TRT_KEYPOINTS = 2,
  GST_TRT_MASKS = 4,
  GST_TRT_FRAME_CLASSES = 8,
  GST_TRT_MAP = 16,
  GST_TRT_VECTOR = 32,
  GST_TRT_TEXT = 64
};

/* Flags of what the model gives besides upright boxes, also where it found nothing in this frame. 0 on errors too. */
uint32_t gst_trt_results_kinds (const GstTrtResults *results);

/* Frees the results and their texts. NULL and freed results are ignored. */
void gst_trt_results_free (GstTrtResults *results);

/* The number of objects, at most the option max-detections (300 by default); 0 on errors too. Indices count from 0, in
 * order of descending confidence. */
size_t gst_trt_results_count (const GstTrtResults *results);

/* The class's name, or # and its id if it has none. Valid until the results are freed. NULL on errors. */
const char *gst_trt_results_label (const GstTrtResults *results, size_t object);

/* 0 on errors too. */
uint32_t gst_trt_results_class_id (const GstTrtResults *results, size_t object);

/* 0..1; NaN on errors. */
float gst_trt_results_confidence (const GstTrtResults *results, size_t object);

/* Left, top, width and height in pixels of the frame, clipped to it. */
GstTrtStatus gst_trt_results_box (const GstTrtResults *results, size_t object, float (*box)[4]);

/* The same of all objects at once: their boxes as gst_trt_results_box() gives them, their confidences and the ids of their
 * classes. count is gst_trt_results_count(), and each array has room for as many, or is NULL. */
GstTrtStatus gst_trt_results_objects (const GstTrtResults *results, size_t count, float (*boxes)[4], float *confidences,
    uint32_t *class_ids);

/* For models with rotated boxes, the rotated box; then gst_trt_results_box() is the upright one around it. For other models, 0
 * radians and the corners of that box.
 *
 * The rotation about the centre: radians, clockwise in the picture, from 0 to below pi/2. NaN on errors. */
float gst_trt_results_angle (const GstTrtResults *results, size_t object);

/* x and y of its four corners in pixels of the frame, in order around the box; the first is the lower right one where the
 * angle is 0. They may lie beyond the frame. */
GstTrtStatus gst_trt_results_corners (const GstTrtResults *results, size_t object, float (*corners)[4][2]);

/* The number of keypoints of each object; 0 if the model has none, and on errors. */
size_t gst_trt_results_keypoint_count (const GstTrtResults *results);

/* The name of a keypoint, the same for all objects; NULL if the model has no names, and on errors. Valid until the results are
 * freed. */
const char *gst_trt_results_keypoint_name (const GstTrtResults *results, size_t keypoint);

/* x and y in pixels of the frame, clipped to it, and visibility in 0..1, NaN if the model does not report it. A keypoint that is
 * not known is at 0, 0. */
GstTrtStatus gst_trt_results_keypoint (const GstTrtResults *results, size_t object, size_t keypoint, float (*point)[3]);

/* The mask of an object: left, top, width and height of a rectangle in pixels of the frame, and its pixels row by row, 255 for
 * those of the object and 0 for others, without padding. No pixel outside the rectangle belongs to the object. Valid until the
 * results are freed. NULL if the model gives no masks, and on errors. */
const uint8_t *gst_trt_results_mask (const GstTrtResults *results, size_t object, uint32_t (*rect)[4]);

/* All fields of an object as JSON: those of trtnms' messages, also fields without a function here. Valid until the results are
 * freed. NULL on errors. */
const char *gst_trt_results_json (const GstTrtResults *results, size_t object);

/* Draws what was found on a frame in host memory, as trtnms and trtoverlay do: maps, masks, boxes, keypoints, labels, and the ids of
 * a tracker. The frame has the size of the one that was detected in. Its planes are written, and nothing else may use them until
 * this returns. Where the results are of a classifier, its classes are written in the corner.
 * objects: the count objects that are drawn, the most important first; NULL for all. */
GstTrtStatus gst_trt_results_draw (const GstTrtResults *results, const GstTrtFrame *frame, const size_t *objects, size_t count);

/* Classes of the frame as a whole, with ranks from 0 in order of descending confidence. Classifiers give these, at most the option
 * top-k (5 by default), and no objects; other models give none.
 *
 * 0 on errors too. */
size_t gst_trt_results_frame_class_count (const GstTrtResults *results);

/* The class's name, or # and its id if it has none. Valid until the results are freed. NULL on errors. */
const char *gst_trt_results_frame_class_label (const GstTrtResults *results, size_t rank);

/* 0 on errors too. */
uint32_t gst_trt_results_frame_class_id (const GstTrtResults *results, size_t rank);

/* 0..1; NaN on errors. */
float gst_trt_results_frame_class_confidence (const GstTrtResults *results, size_t rank);

/* All fields of a class as JSON. Valid until the results are freed. NULL on errors. */
const char *gst_trt_results_frame_class_json (const GstTrtResults *results, size_t rank);

/* The vector of the frame as a whole, and how many numbers it has. Models of the layout embed give it, and no objects. Its length is 1, so
 * the sum of the products of two vectors is the cosine of the angle between them. Valid until the results are freed. NULL if there is no
 * vector, and on errors. */
const float *gst_trt_results_vector (const GstTrtResults *results, size_t *count);

/* The text of the frame as a whole, in UTF-8, and the mean probability of its characters, 0..1. Models of the layouts ctc and slots give
 * it, and no objects. It is empty, and the probability 0, where nothing was read. Valid until the results are freed. NULL if the model
 * reads no text, and on errors. */
const char *gst_trt_results_text (const GstTrtResults *results, float *confidence);

/* The map of the frame, row by row, and its width and height; it has the resolution of the model's input, without padding. Models for
 * semantic segmentation give classes, 65535 where there is none. Models for depth give depths: 0 is the minimum and 65535 the maximum of
 * gst_trt_results_map_range(). Models with masks and the option mask-output=map give objects: 0 is none, 1 the first. Valid until the
 * results are freed. NULL if there is no map, and on errors. */
const uint16_t *gst_trt_results_map (const GstTrtResults *results, uint32_t (*size)[2]);

/* Minimum and maximum of a map of depths; a map of anything else is an error. */
GstTrtStatus gst_trt_results_map_range (const GstTrtResults *results, float (*range)[2]);

/* All fields of the map but its values as JSON. Valid until the results are freed. NULL if there is no map, and on errors. */
const char *gst_trt_results_map_json (const GstTrtResults *results);

/* Regions of a map: all pixels of a class or an object. Counted from 0, in the order of their values; a map of depths has none.
 *
 * 0 on errors too. */
size_t gst_trt_results_map_region_count (const GstTrtResults *results);

/* The class's name, or # and its id if it has none. Valid until the results are freed. NULL on errors. */
const char *gst_trt_results_map_region_label (const GstTrtResults *results, size_t region);

/* The value of its pixels, the id of the class, and the number of pixels. */
GstTrtStatus gst_trt_results_map_region (const GstTrtResults *results, size_t region, uint32_t (*numbers)[3]);

/* Gives the objects of one stream's frames ids that stay the same from frame to frame, as trttrack does. */
typedef struct GstTrtTracker GstTrtTracker;

/* options: strings such as "tracker=ocsort" or "track-thresh=0.6", with NULL after the last; or NULL. Names, ranges and defaults are
 * those of the properties of trttrack, without classes, post-messages and stats. On errors the tracker is NULL. */
GstTrtStatus gst_trt_tracker_new (const char *const *options, GstTrtTracker **tracker);

/* NULL and freed trackers are ignored. */
void gst_trt_tracker_free (GstTrtTracker *tracker);

/* Ends all tracks, as after a seek. No id is given twice. */
GstTrtStatus gst_trt_tracker_reset (GstTrtTracker *tracker);

/* Gives the objects in a frame's results their ids: once, and before gst_trt_results_json() is called for them. Frames come in their order.
 * time and frame_duration are in nanoseconds; a frame_duration of 0 means unknown, and then no frames count as missing. */
GstTrtStatus gst_trt_tracker_update (GstTrtTracker *tracker, GstTrtResults *results, uint64_t time,
                                     uint64_t frame_duration);

/* The same with what each object looks like: a vector of dims numbers for each, one after the other in the order of the objects. All are of
 * one model, and may have any length. tracker=botsort, deepocsort and boosttrack compare them, and the others ignore them. An object whose
 * numbers are all 0, or not all finite, is followed by its box alone. */
GstTrtStatus gst_trt_tracker_update_with_vectors (GstTrtTracker *tracker, GstTrtResults *results, uint64_t time,
                                                  uint64_t frame_duration, const float *vectors, size_t dims);

/* The id that a tracker gave an object, from 1 on; 0 if it has none, and on errors. */
uint64_t gst_trt_results_track_id (const GstTrtResults *results, size_t object);

/* The number of GPUs. If CUDA cannot be used, this is GST_TRT_LIBRARY, count is 0, and gst_trt_last_error() returns why. */
GstTrtStatus gst_trt_gpu_count (uint32_t *count);

/* The session's own input and output buffers: on the GPU if the model runs there, else on the host. Copies wait for the run
 * before them; run_buffers returns when the run is enqueued. */
GstTrtStatus gst_trt_session_copy_input (GstTrtSession *session, const void *input, size_t bytes);
GstTrtStatus gst_trt_session_run_buffers (GstTrtSession *session);
GstTrtStatus gst_trt_session_copy_output (GstTrtSession *session, size_t index, void *output, size_t bytes);

/* The device pointers of these buffers, which TensorRT reads and writes. Valid until the session is closed. GST_TRT_LIBRARY if
 * the model does not run on a GPU. */
GstTrtStatus gst_trt_session_buffers (GstTrtSession *session, void **input, void **outputs, size_t count);

/* Runs the model on the caller's tensors in GPU memory, without a copy, in the order of `stream`: after the work enqueued so
 * far, before later work. Returns when the run is enqueued; the memory must stay until it is done. Tensors are aligned to 256
 * bytes. Pointers belong to the GPU's primary context, as those of cudaMalloc and PyTorch do; `stream` is a CUstream or
 * cudaStream_t of that context, or NULL for the default stream. */
GstTrtStatus gst_trt_session_run_device (GstTrtSession *session, void *input, void *const *outputs, size_t count,
                                         void *stream);

/* Tensors of other frameworks, with DLPack (dmlc.github.io/dlpack). The only copy is that of a host tensor for a model on a
 * GPU.
 *
 * `stream` is the CUDA stream on which the caller uses tensors on a GPU; NULL is the default stream. They are written after the
 * work enqueued there so far, and later work there may read them. A deleter may be called while such work is pending: the memory
 * is reused only after the work enqueued on `stream` until then. The stream must stay until the deleters have been called. If it
 * is not known or does not stay, pass GST_TRT_STREAM_UNKNOWN: then these functions wait on the host for the tensors, and the
 * deleters for all work on the GPU. So do deleters that another thread calls where `stream` is CU_STREAM_PER_THREAD. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

#define GST_TRT_STREAM_UNKNOWN ((void *) (intptr_t) -1)

/* Runs the model on a tensor, which is consumed also on errors. The caller owns the outputs: it may write them and frees them
 * with their deleters. They stay valid after the session is closed. */
GstTrtStatus gst_trt_session_run_dlpack (GstTrtSession *session, struct DLManagedTensor *input, void *stream,
                                         struct DLManagedTensor **outputs, size_t count);

/* A tensor of a frame in a pipeline: after trtpreprocess the model's input, after trtinfer its outputs. Waits while a batch is
 * still being filled. The caller frees the tensor with its deleter. It must not be written, because the elements use the same
 * memory. This structure has no read-only flag, so on the host it is a copy; on a GPU nothing is copied. The plugin exports the
 * tensor, so the program must load GStreamer and the plugin of this library's version. */
struct _GstBuffer;
GstTrtStatus gst_trt_buffer_tensor (const struct _GstBuffer *buffer, size_t index, void *stream,
                                    struct DLManagedTensor **tensor);

/* The same with the structure of DLPack 1.0 and later, which has a read-only flag. Nothing is copied. */
GstTrtStatus gst_trt_buffer_tensor_versioned (const struct _GstBuffer *buffer, size_t index, void *stream,
                                              struct DLManagedTensorVersioned **tensor);

#ifdef __cplusplus
}
#endif

#endif
