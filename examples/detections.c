/* SPDX-License-Identifier: MPL-2.0 */
/* Prints the objects in a video: label, confidence and box of each, as trtnms attaches them to the frames.
 *
 * cc examples/detections.c $(pkg-config --cflags --libs gstreamer-app-1.0 gstreamer-video-1.0) -o detections
 * GST_PLUGIN_PATH=target/release ./detections tests/data/sample.mp4 tests/models/shapes.onnx
 */
#include <gst/app/gstappsink.h>
#include <gst/gst.h>
#include <gst/video/gstvideometa.h>
#include <string.h>

/* README: begin */
static void
print_objects (GstBuffer *buffer)
{
  GstMeta *meta;
  gpointer state = NULL;
  while ((meta = gst_buffer_iterate_meta_filtered (buffer, &state, GST_VIDEO_REGION_OF_INTEREST_META_API_TYPE))) {
    GstVideoRegionOfInterestMeta *roi = (GstVideoRegionOfInterestMeta *) meta;
    /* NULL where a converter behind trtnms has dropped it. */
    GstStructure *detection = gst_video_region_of_interest_meta_get_param (roi, "detection");
    gdouble confidence;
    if (detection && gst_structure_get_double (detection, "confidence", &confidence))
      g_print ("%s %.2f (%u, %u, %u, %u)\n", g_quark_to_string (roi->roi_type), confidence, roi->x, roi->y, roi->w, roi->h);
    else
      g_print ("%s ? (%u, %u, %u, %u)\n", g_quark_to_string (roi->roi_type), roi->x, roi->y, roi->w, roi->h);
  }
}

/* The end or an error, if there is one yet. Warnings are printed. */
static GstMessage *
pop_end (GstBus *bus)
{
  GstMessage *message;
  while ((message = gst_bus_pop_filtered (bus, GST_MESSAGE_WARNING | GST_MESSAGE_ERROR | GST_MESSAGE_EOS))
      && GST_MESSAGE_TYPE (message) == GST_MESSAGE_WARNING) {
    GError *warning = NULL;
    gst_message_parse_warning (message, &warning, NULL);
    g_printerr ("Warning: %s\n", warning->message);
    g_error_free (warning);
    gst_message_unref (message);
  }
  return message;
}

/* Plays to the end, or to the first error, whose text it prints. */
static gboolean
play (GstElement *pipeline, GstAppSink *out)
{
  GstBus *bus = gst_element_get_bus (pipeline);
  gboolean started = gst_element_set_state (pipeline, GST_STATE_PLAYING) != GST_STATE_CHANGE_FAILURE;
  GstMessage *end;
  while (!(end = pop_end (bus)) && started) {
    GstSample *sample = gst_app_sink_try_pull_sample (out, GST_SECOND / 10);
    if (sample) {
      print_objects (gst_sample_get_buffer (sample));
      gst_sample_unref (sample);
    }
  }
  gst_element_set_state (pipeline, GST_STATE_NULL);

  gboolean succeeded = end && GST_MESSAGE_TYPE (end) == GST_MESSAGE_EOS;
  if (!succeeded) {
    GError *error = NULL;
    char *debug = NULL;
    if (end)
      gst_message_parse_error (end, &error, &debug);
    const char *detail = debug ? strchr (debug, '\n') : NULL; /* such as which file is not there */
    g_printerr ("Error: %s%s\n", error ? error->message : "The pipeline does not start.", detail ? detail : "");
    g_clear_error (&error);
    g_free (debug);
  }
  g_clear_pointer (&end, gst_message_unref);
  gst_object_unref (bus);
  return succeeded;
}
/* README: end */

int
main (int argc, char **argv)
{
  gst_init (&argc, &argv);
  if (argc != 3) {
    g_printerr ("Usage: detections VIDEO MODEL\n");
    return 1;
  }
  gchar *line = g_strdup_printf ("filesrc location=\"%s\" ! decodebin ! videoconvert ! trtpreprocess ! "
      "trtinfer model-file=\"%s\" ! trtnms draw=false ! appsink name=out sync=false", argv[1], argv[2]);
  GError *error = NULL;
  GstElement *pipeline = gst_parse_launch_full (line, NULL, GST_PARSE_FLAG_FATAL_ERRORS, &error);
  g_free (line);
  if (!pipeline) {
    g_printerr ("Error: %s\n", error->message);
    g_error_free (error);
    return 1;
  }
  GstAppSink *out = GST_APP_SINK (gst_bin_get_by_name (GST_BIN (pipeline), "out"));
  gboolean succeeded = play (pipeline, out);
  gst_object_unref (out);
  gst_object_unref (pipeline);
  return succeeded ? 0 : 1;
}
