/* SPDX-License-Identifier: MPL-2.0 */
/* gsttrt.h: run a detection model, or detect objects in frames, without a pipeline.
 *
 * The functions are in libgsttrt-1, which needs no GStreamer: cc program.c $(pkg-config --cflags --libs gsttrt-1.0)
 *
 * Errors: a function that returns a GstTrtStatus other than GST_TRT_OK has done nothing else, and gst_trt_last_error()
 * says in the same thread what failed and what to do. So has one that returns what it documents for errors: NULL, 0 or NaN.
 * A session stays usable after any error. NULL, sizes that do not fit, and handles that are closed already are errors too.
 * A panic inside is caught and is GST_TRT_PANIC.
 *
 * Threads: any function may be called from any thread. A session does one thing at a time: a second thread waits for the
 * first. To run in parallel, open several sessions. A session that is closed while it runs goes once it is done.
 *
 * Handles (GstTrtSession, GstTrtResults, GstTrtTensorInfo) are opaque: they are no addresses, and are never used twice.
 *
 * Later versions add functions, fields at the end of structures whose first field is struct_size, and values of enumerations.
 * Programs that were built for this version go on working with them.
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
  GST_TRT_SETTINGS = 1,    /* an option makes no sense, or does not suit the model */
  GST_TRT_NOT_FOUND = 2,   /* a file is not there */
  GST_TRT_READ = 3,        /* a file cannot be read */
  GST_TRT_MODEL = 4,       /* a model file is broken, or not one that can be used */
  GST_TRT_LIBRARY = 5,     /* a library that is needed is missing or does not start */
  GST_TRT_RUN = 6,         /* the model failed to run */
  GST_TRT_WRONG_TYPE = 7,  /* an argument is NULL, of the wrong size, or not what the model takes */
  GST_TRT_NEGOTIATION = 8, /* no tensor can be made of such a frame */
  GST_TRT_PANIC = 9        /* a bug in this library */
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

/* How sample values become colours, for YUV and gray formats; 0 is BT.601 in limited range, chroma between samples. */
enum {
  GST_TRT_BT709 = 1,
  GST_TRT_BT2020 = 2,
  GST_TRT_FULL_RANGE = 4,
  GST_TRT_CHROMA_LEFT = 8, /* as H.264 has it by default; these two count with the option chroma-sampling=sited */
  GST_TRT_CHROMA_TOP = 16
};

#define GST_TRT_MAX_PLANES 3

/* A frame, of which the program keeps the memory until the function returns. All bytes that are not set are 0. */
typedef struct {
  size_t struct_size; /* sizeof (GstTrtFrame) */
  const char *format; /* as GStreamer names it: NV12, P010_10LE, I420, RGB, BGR, RGBA, BGRA, RGBx, BGRx, GRAY8 */
  uint32_t width;     /* in pixels */
  uint32_t height;
  uint32_t color; /* of the flags above */
  uint32_t reserved; /* 0 */
  const void *planes[GST_TRT_MAX_PLANES];
  size_t strides[GST_TRT_MAX_PLANES]; /* bytes from one row to the next */
  size_t bytes[GST_TRT_MAX_PLANES];   /* that may be read from each plane on; without meaning in GPU memory */
} GstTrtFrame;

/* A loaded model with all around it. */
typedef struct GstTrtSession GstTrtSession;

/* An input or output of a model: a contiguous array, the last dimension innermost. */
typedef struct GstTrtTensorInfo GstTrtTensorInfo;

/* The objects that were found in a frame. */
typedef struct GstTrtResults GstTrtResults;

/* What failed in the last call of this thread that failed; "" if none did. Stays until the next that fails. */
const char *gst_trt_last_error (void);

/* Loads an ONNX file or a TensorRT engine. Engines are programs: only for files you trust. TensorRT builds an engine of
 * an ONNX file that it sees for the first time, which takes seconds to minutes.
 *
 * options: texts like "backend=cpu" or "score-threshold=0.5" and a NULL at the end, or NULL. Names, ranges and defaults are
 * those of the properties of trtinfer and trtnms, save that cuda-device-id is 0 by default. */
GstTrtStatus gst_trt_session_open (const char *model, const char *const *options, GstTrtSession **session);

/* NULL and sessions that are closed already are no harm. */
void gst_trt_session_close (GstTrtSession *session);

/* "tensorrt" or "cpu"; NULL on errors. Stays until the session is closed. */
const char *gst_trt_session_backend (GstTrtSession *session);

/* Why backend=auto came to the CPU; NULL where it did not, and on errors. Stays until the session is closed. */
const char *gst_trt_session_reason (GstTrtSession *session);

/* The tensor that the model takes: one picture. Inputs beside it, such as its size, the session fills. NULL on errors. It is
 * the session's, as are the outputs', and closed with it. */
const GstTrtTensorInfo *gst_trt_session_input (GstTrtSession *session);

/* 0 on errors. */
size_t gst_trt_session_output_count (GstTrtSession *session);

/* Outputs are counted from 0. Dimensions that the file leaves open are those of a first run on zeros. NULL on errors. */
const GstTrtTensorInfo *gst_trt_session_output (GstTrtSession *session, size_t index);

/* Its name in the model, which stays until the session is closed. NULL on errors. */
const char *gst_trt_tensor_info_name (const GstTrtTensorInfo *tensor);

/* GST_TRT_NO_TYPE on errors. */
GstTrtType gst_trt_tensor_info_type (const GstTrtTensorInfo *tensor);

/* How many dimensions it has; 0 on errors too. */
size_t gst_trt_tensor_info_rank (const GstTrtTensorInfo *tensor);

/* How many elements it has along an axis, counted from 0, the outermost. 0 on errors. */
int64_t gst_trt_tensor_info_dim (const GstTrtTensorInfo *tensor, size_t axis);

/* Of the whole array. 0 on errors. */
size_t gst_trt_tensor_info_bytes (const GstTrtTensorInfo *tensor);

/* Runs the model on the bytes of its input and writes all outputs, in their order. count is gst_trt_session_output_count()
 * and output_bytes are the outputs' sizes. Memory may lie at any address. Nothing is written on errors. */
GstTrtStatus gst_trt_session_run (GstTrtSession *session, const void *input, size_t bytes, void *const *outputs,
                                  const size_t *output_bytes, size_t count);

/* Finds the objects in a frame: what trtpreprocess ! trtinfer ! trtnms find. results is set to a handle of the caller's, to be
 * freed by gst_trt_results_free(), and to NULL on errors. Results stay when the session detects again, and when it is closed. */
GstTrtStatus gst_trt_session_detect (GstTrtSession *session, const GstTrtFrame *frame, GstTrtResults **results);

/* The same for a frame in GPU memory: planes are device pointers, read where they are, behind all that is queued on `stream`
 * so far. It has been read when this returns. GST_TRT_LIBRARY where the model does not run on a GPU. */
GstTrtStatus gst_trt_session_detect_device (GstTrtSession *session, const GstTrtFrame *frame, void *stream,
                                            GstTrtResults **results);

/* Texts of the results go with them. NULL and results that are freed already are no harm. */
void gst_trt_results_free (GstTrtResults *results);

/* How many objects were found, at most the option max-detections (300); 0 on errors too. Functions that take an object count
 * from 0, the best confidence first. */
size_t gst_trt_results_count (const GstTrtResults *results);

/* The class's name, or # and its id where it has none. Stays until the results are freed. NULL on errors. */
const char *gst_trt_results_label (const GstTrtResults *results, size_t object);

/* 0 on errors too. */
uint32_t gst_trt_results_class_id (const GstTrtResults *results, size_t object);

/* 0..1; NaN on errors. */
float gst_trt_results_confidence (const GstTrtResults *results, size_t object);

/* Left, top, width and height in pixels of the frame, inside it. */
GstTrtStatus gst_trt_results_box (const GstTrtResults *results, size_t object, float (*box)[4]);

/* Of models whose boxes are turned, the box as it is turned; box is the upright one around it then. 0 radians and the corners of box
 * where the model turns none.
 *
 * By how much it is turned about its centre: radians, clockwise as pictures are seen, from 0 to below pi/2. NaN on errors. */
float gst_trt_results_angle (const GstTrtResults *results, size_t object);

/* x and y of its four corners in pixels of the frame, one after the other around it; the first is the lower right one where the
 * angle is 0. They may lie beyond the frame. */
GstTrtStatus gst_trt_results_corners (const GstTrtResults *results, size_t object, float (*corners)[4][2]);

/* How many keypoints each object has; 0 where the model finds none, and on errors. */
size_t gst_trt_results_keypoint_count (const GstTrtResults *results);

/* Its name, the same for all objects; NULL where the model does not name keypoints, and on errors. Stays until the results are
 * freed. */
const char *gst_trt_results_keypoint_name (const GstTrtResults *results, size_t keypoint);

/* x and y in pixels of the frame, inside it, and visibility in 0..1, NaN where the model does not tell it. A keypoint that is not
 * known is at 0, 0. */
GstTrtStatus gst_trt_results_keypoint (const GstTrtResults *results, size_t object, size_t keypoint, float (*point)[3]);

/* All that is known of an object, as JSON: the fields of trtnms' messages, also those that have no function here. Stays until the
 * results are freed. NULL on errors. */
const char *gst_trt_results_json (const GstTrtResults *results, size_t object);

/* How many GPUs there are. Where CUDA cannot be used this is GST_TRT_LIBRARY, the number 0, and gst_trt_last_error() why. */
GstTrtStatus gst_trt_gpu_count (uint32_t *count);

/* Input and outputs of its own that a session runs on again and again: on the GPU where the model runs there, else on the
 * host. Copies wait for the run before them; run_buffers returns when the run is queued. */
GstTrtStatus gst_trt_session_copy_input (GstTrtSession *session, const void *input, size_t bytes);
GstTrtStatus gst_trt_session_run_buffers (GstTrtSession *session);
GstTrtStatus gst_trt_session_copy_output (GstTrtSession *session, size_t index, void *output, size_t bytes);

/* Where they lie in the GPU's memory, until the session is closed: what TensorRT reads and writes. GST_TRT_LIBRARY where
 * the model does not run on a GPU. */
GstTrtStatus gst_trt_session_buffers (GstTrtSession *session, void **input, void **outputs, size_t count);

/* Runs the model on tensors in GPU memory that are the caller's, none of them copied: behind all that is queued on `stream`
 * so far, and before all that is queued there later. Returns when it is queued; the memory must stay until it is done. Each
 * tensor begins at a multiple of 256 bytes. Pointers are of the GPU's primary context, as those of cudaMalloc and PyTorch;
 * `stream` is a CUstream or cudaStream_t of it, NULL the default one. */
GstTrtStatus gst_trt_session_run_device (GstTrtSession *session, void *input, void *const *outputs, size_t count,
                                         void *stream);

/* Tensors of other frameworks, by DLPack (dmlc.github.io/dlpack). Nothing is copied but a tensor on the host for a model on a
 * GPU.
 *
 * `stream` is where the caller works on tensors that are on a GPU, as CUDA names it: NULL is the default one. They are written
 * behind what is queued there so far, and may be read by what is queued there later. When a deleter is called, memory of a tensor
 * is used again only behind what is queued on `stream` by then, so the tensor may be deleted while work that reads it is queued.
 * The stream must stay until then. Where it is not known, or does not stay, give GST_TRT_STREAM_UNKNOWN: the host waits then, for
 * the tensors here, and for all work on the GPU in the deleter. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

#define GST_TRT_STREAM_UNKNOWN ((void *) (intptr_t) -1)

/* Runs the model on a tensor, which is consumed, whatever the outcome. All outputs are the caller's, who may write them, to be
 * freed by their deleters; they stay after the session is closed. */
GstTrtStatus gst_trt_session_run_dlpack (GstTrtSession *session, struct DLManagedTensor *input, void *stream,
                                         struct DLManagedTensor **outputs, size_t count);

/* A tensor that rides on a frame of a pipeline: behind trtpreprocess the model's input, behind trtinfer its outputs, for which this
 * waits where a batch is still being filled. It is to be freed by its deleter. The elements use the same memory, so it must not be
 * written, which this structure cannot say: on the host it is a copy therefore. On a GPU nothing is copied. The plugin exports
 * the tensor, so the program has GStreamer and the plugin, of this library's version. */
struct _GstBuffer;
GstTrtStatus gst_trt_buffer_tensor (const struct _GstBuffer *buffer, size_t index, void *stream,
                                    struct DLManagedTensor **tensor);

/* The same in the structure of DLPack 1.0 and later, with the flag that it must not be written. Nothing is copied. */
GstTrtStatus gst_trt_buffer_tensor_versioned (const struct _GstBuffer *buffer, size_t index, void *stream,
                                              struct DLManagedTensorVersioned **tensor);

#ifdef __cplusplus
}
#endif

#endif
