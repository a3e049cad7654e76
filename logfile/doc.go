// Package logfile reads the log files of containers: CRI's format and Docker's
// JSON lines, the current file and what rotation made of the older ones,
// compressed or not, once or for as long as the container writes.
package logfile
