// Finds keypoints in a picture: pose MODEL PICTURE.ppm
#include <cmath>
#include <cstdio>
#include <fstream>
#include <gsttrt.h>
#include <memory>
#include <string>
#include <vector>

static int
failed ()
{
  std::fprintf (stderr, "Error: %s\n", gst_trt_last_error ());
  return 1;
}

int
main (int argc, char **argv)
{
  if (argc != 3)
    return 2;
  std::ifstream file (argv[2], std::ios::binary);
  std::string kind;
  unsigned width = 0, height = 0, maximum = 0;
  file >> kind >> width >> height >> maximum;
  file.get ();
  std::vector<char> pixels (std::size_t (3) * width * height);
  if (kind != "P6" || !file.read (pixels.data (), static_cast<std::streamsize> (pixels.size ())))
    return 2;

  GstTrtSession *opened = nullptr;
  const char *options[] = { "backend=cpu", nullptr };
  if (gst_trt_session_open (argv[1], options, &opened) != GST_TRT_OK)
    return failed ();
  std::unique_ptr<GstTrtSession, decltype (&gst_trt_session_close)> session (opened, gst_trt_session_close);

  GstTrtFrame frame {};
  frame.struct_size = sizeof frame;
  frame.format = "RGB";
  frame.width = width;
  frame.height = height;
  frame.planes[0] = pixels.data ();
  frame.strides[0] = std::size_t (3) * width;
  frame.bytes[0] = pixels.size ();
  GstTrtResults *found = nullptr;
  if (gst_trt_session_detect (session.get (), &frame, &found) != GST_TRT_OK)
    return failed ();
  std::unique_ptr<GstTrtResults, decltype (&gst_trt_results_free)> results (found, gst_trt_results_free);

  for (std::size_t object = 0; object < gst_trt_results_count (found); object++) {
    std::printf ("%s %.2f", gst_trt_results_label (found, object), double (gst_trt_results_confidence (found, object)));
    float box[4];
    if (gst_trt_results_box (found, object, &box) != GST_TRT_OK)
      return failed ();
    for (std::size_t i = 0; i < gst_trt_results_keypoint_count (found); i++) {
      float point[3];
      if (gst_trt_results_keypoint (found, object, i, &point) != GST_TRT_OK)
        return failed ();
      const char *name = gst_trt_results_keypoint_name (found, i);
      bool inside = point[0] >= 0 && point[0] <= float (width) && point[1] >= 0 && point[1] <= float (height);
      if (!inside || std::isnan (point[2]))
        return 3;
      std::printf (" %s (%.1f, %.1f) %.2f", name ? name : "?", double (point[0]), double (point[1]), double (point[2]));
    }
    std::printf ("\n");
  }
  return 0;
}
