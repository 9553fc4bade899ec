"""Programs on paged arrays, and Figures 3.2 to 3.9 of Ibtesham's dissertation (University of New
Mexico, 2017) from their runs, where its third chapter has a simulator."""
