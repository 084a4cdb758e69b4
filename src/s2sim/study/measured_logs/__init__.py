"""What programs that measure collectives print, read and written."""
