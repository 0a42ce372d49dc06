"""The wire and disk formats as pure functions and sans-io state: shared by broker, client and Spark."""
