/* An empty library with libibverbs' name and versions, to link against: the machine that builds need not have the real one. */
int dgv_behind(void);
int dgv_behind(void) { return 0; }
