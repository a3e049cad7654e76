// Package output turns CRI messages into bytes: tables for people; JSON, YAML,
// names and templates for programs.
//
// A caller chooses the data and an Options value; a renderer such as
// Containers, Pods or InspectContainers chooses the looks. Renderers are pure:
// width, colour, time and time zone come in as values, no RPC is made and no
// terminal is asked.
//
// Machine formats are the CRI message itself in crictl's shape (protojson with
// every field present, 64-bit integers as strings), with spacing and key order
// that do not change between builds. Tables may change and must not be parsed;
// whatever a container controls passes Sanitize before it gets into one.
package output
