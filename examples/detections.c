/* Reads detections in an application: the labels, scores and boxes that trtnms hangs on each buffer.
 *
 * cc examples/detections.c $(pkg-config --cflags --libs gstreamer-app-1.0 gstreamer-video-1.0) -o detections
 * GST_PLUGIN_PATH=target/release ./detections tests/data/sample.mp4 tests/models/shapes.onnx
 */
#include <gst/app/gstappsink.h>
#include <gst/gst.h>
#include <gst/video/gstvideometa.h>

int
main (int argc, char **argv)
{
  gst_init (&argc, &argv);
  if (argc != 3)
    return 1;
  gchar *line = g_strdup_printf ("filesrc location=%s ! decodebin ! videoconvert ! trtpreprocess ! "
      "trtinfer model-file=%s ! trtnms draw=false ! appsink name=out sync=false", argv[1], argv[2]);
  GError *error = NULL;
  GstElement *pipeline = gst_parse_launch_full (line, NULL, GST_PARSE_FLAG_FATAL_ERRORS, &error);
  g_free (line);
  if (!pipeline) {
    g_printerr ("%s\n", error->message);
    g_error_free (error);
    return 1;
  }
  GstAppSink *out = GST_APP_SINK (gst_bin_get_by_name (GST_BIN (pipeline), "out"));
  gst_element_set_state (pipeline, GST_STATE_PLAYING);
  /* README: begin */
  for (GstSample *sample; (sample = gst_app_sink_pull_sample (out)); gst_sample_unref (sample)) {
    GstVideoRegionOfInterestMeta *roi;
    gpointer state = NULL;
    while ((roi = (GstVideoRegionOfInterestMeta *) gst_buffer_iterate_meta_filtered (gst_sample_get_buffer (sample),
                &state, GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE))) {
      gdouble confidence = 0;
      gst_structure_get_double (gst_video_region_of_interest_meta_get_param (roi, "detection"), "confidence", &confidence);
      g_print ("%s %.2f (%u, %u, %u, %u)\n", g_quark_to_string (roi->roi_type), confidence, roi->x, roi->y, roi->w, roi->h);
    }
  }
  /* README: end */
  gst_element_set_state (pipeline, GST_STATE_NULL);
  gst_object_unref (out);
  gst_object_unref (pipeline);
  return 0;
}
